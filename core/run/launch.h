/* A launch: one program with its operands, on its way from the recording thread to the device. */
#ifndef TT_LAUNCH_H
#define TT_LAUNCH_H

#include "run/program.h"
#include "run/value.h"

typedef struct tt_launch {
  tt_program *program;
  const char *name; /* borrowed from the call */
  uint32_t site;
  int input_count, output_count, word_count;
  tt_value **inputs, **outputs; /* one reference each */
  uint32_t *words;
  tt_status *failure; /* Debug: where the error goes, instead of the stream's */
} tt_launch;

/* One block with room for everything; NULL when memory is out. */
tt_launch *tt_launch_create(int inputs, int outputs, int words);
void tt_launch_destroy(tt_launch *launch);

/* Says which operator failed, and the Python line; success stays success. */
tt_status tt_launch_error(tt_status status, const char *name, uint32_t site);

/* Small packed-number buffers that were uploaded before; used by one thread. */
typedef struct tt_word_cache tt_word_cache;
tt_status tt_word_cache_create(tt_device *device, tt_word_cache **out);
void tt_word_cache_destroy(tt_word_cache *cache); /* NULL is allowed */

/* Runs it: waits for the compiler, executes, fulfils the outputs. On failure the outputs carry the
 * error, and it is returned unless an input carried it already (then it was reported before).
 * `done`, when not NULL, receives an event for the end of an asynchronous execution; in Debug that
 * end is waited for. */
tt_status tt_launch_run(tt_launch *launch, tt_device *device, tt_word_cache *cache,
                        tt_event **done);

#endif
