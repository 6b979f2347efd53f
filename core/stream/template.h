/* Templates: what a decomposition did for one key of arguments (notes.h), recorded again without
 * the decomposition. Random operators draw anew each time, from the device's default generator. */
#ifndef TT_TEMPLATE_H
#define TT_TEMPLATE_H

#include "stream/notes.h"

/* Records the operators again, for other storages of the same types and states. `storages`:
 * [tt_template_slots] the arguments first, the rest NULL, which receive the results, the caller's,
 * also after a failure. `place`: where the generator stands. Thread-safe. */
tt_status tt_template_run(const tt_template *t, tt_stream *stream, tt_storage **storages,
                          tt_philox_place place, const tt_policy *policy, uint32_t site);

#endif
