/* Source lines: small numbers for the Python lines that call operators. Thread-safe. */
#ifndef TT_SITE_H
#define TT_SITE_H

#include <stdint.h>

enum { TT_SITE_LIMIT = 65536 };

/* The line's number, the same each time; the text is copied. 0: unknown, or one too many. */
uint32_t tt_site_add(const char *file, int line, const char *function);
const char *tt_site_text(uint32_t site); /* "file.py:12 in f", or "" */
uint32_t tt_site_count(void);            /* sites are below this number */

#endif
