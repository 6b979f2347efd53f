/* Memory mappings: Linux lets a process have so many (vm.max_map_count, 65,530 by default), and
 * XLA's CPU compiler takes six for each kernel. When it gets no more it ends the process. */
#ifndef TT_MAPPINGS_H
#define TT_MAPPINGS_H

#include <stdint.h>

/* How many more until half of them are in use: negative where they are scarce, INT64_MAX where that
 * is not known. Takes a millisecond or more for a thousand mappings. Thread-safe. */
int64_t tt_mappings_room(void);

#endif
