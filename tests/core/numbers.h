/* What tests of right numbers share: the plugins that compute, vectors of floats, draws that show
 * where they come from. */
#ifndef TT_NUMBERS_H
#define TT_NUMBERS_H

#include "support.h"

/* XLA's CPU plugin, as it is and as an accelerator (accel_plugin/accel.h) with three seeds. */
enum { PLUGINS = 4 };

/* Opens a session of two devices on a plugin; false where there is none. */
bool numbers_open(int plugin);
/* Closes it; an error if anything of the accelerator's is left. */
int numbers_close(void);
/* As tt_accel_count; 0 on the CPU itself. */
int64_t accel_count(const char *what);

tt_storage *floats_of(tt_stream *stream, int64_t n, const float *values);
/* Reads the storage: n floats, at most 64. */
void expect(tt_storage *storage, int64_t n, const float *values);

/* A random operator whose result, I64[2], is the place that it drew from. */
tt_status record_draw(tt_stream *stream, const void *generator, int64_t blocks,
                      tt_philox_place place, tt_storage **out);
void expect_place(tt_storage *storage, uint64_t seed, uint64_t offset);

#endif
