/* Memory mappings: Linux lets a process have so many (vm.max_map_count, 65,530 by default), and
 * XLA's CPU compiler takes six for each kernel. When it gets no more it ends the process. */
#ifndef TT_MAPPINGS_H
#define TT_MAPPINGS_H

#include <stdbool.h>

/* Are more than half of them in use? False where that is not known. Takes half a millisecond for a
 * thousand mappings. Thread-safe. */
bool tt_mappings_scarce(void);

#endif
