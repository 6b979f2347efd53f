/* Numbers of sections and captures, by which values know where they were recorded. */
#ifndef TT_IDS_H
#define TT_IDS_H

#include <stdint.h>

uint64_t tt_next_section(void); /* never 0; thread-safe */

#endif
