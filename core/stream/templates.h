/* The table of templates: what is known of each key of arguments. Bounded; and since keys name
 * types, it forgets everything when calls and types are reclaimed. Thread-safe, in a guard. */
#ifndef TT_TEMPLATES_H
#define TT_TEMPLATES_H

#include "stream/noted.h"

enum { TT_TEMPLATES_MOST = 65536 }; /* when there are so many, all are forgotten */

typedef struct tt_templates tt_templates;
/* The calls are borrowed. */
tt_status tt_templates_create(tt_call_table *calls, tt_templates **out);
void tt_templates_destroy(tt_templates *all); /* NULL is allowed */

/* Whether the key is known. *out is then the caller's, or NULL: its notes are of no use. */
bool tt_templates_find(tt_templates *all, const tt_key *key, tt_template **out);
/* Keeps what is known of a key from now on; takes the reference of `made`, which may be NULL. A key
 * that is known stays as it is; where memory is out, nothing is kept. */
void tt_templates_keep(tt_templates *all, const tt_key *key, tt_template *made);

#endif
