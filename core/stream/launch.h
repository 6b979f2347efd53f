/* A launch: one program with its operands, on its way from the recording thread to the device. */
#ifndef TT_LAUNCH_H
#define TT_LAUNCH_H

#include "run/program.h"
#include "run/value.h"

struct tt_step;

/* What is launched, for messages. Calls, steps and programs outlive all launches. */
typedef struct tt_origin {
  tt_program *program; /* NULL: none could be made */
  const char *name;    /* of the operator; of a chunk, the last one's */
  uint32_t site;
  const struct tt_step *end; /* a chunk of several operators: the last one's step; else NULL */
  uint32_t first_site;       /* the chunk's first operator's */
} tt_origin;

typedef struct tt_launch {
  struct tt_launch *next; /* in a list of some that belong together */
  tt_origin origin;
  int input_count, output_count, word_count;
  tt_value **inputs, **outputs; /* one reference each; a chunk's in the order of their slots */
  uint32_t *words;
  uint32_t *sites;    /* a chunk's: of each operator */
  uint8_t *live;      /* a chunk's: which of its slots are outputs */
  tt_status refused;  /* a chunk's: why there is no program */
  bool wait;          /* for its end */
  tt_status *failure; /* Debug: where the error goes, instead of the stream's */
} tt_launch;

/* One block with room for everything; `end` is a chunk's last step, or NULL. NULL when memory is
 * out. */
tt_launch *tt_launch_create(int inputs, int outputs, int words, const struct tt_step *end);
void tt_launch_destroy(tt_launch *launch);
void tt_launch_destroy_list(tt_launch *first); /* NULL is allowed */

/* Small packed-number buffers that were uploaded before; used by one thread. */
typedef struct tt_word_cache tt_word_cache;
tt_status tt_word_cache_create(tt_device *device, tt_word_cache **out);
void tt_word_cache_destroy(tt_word_cache *cache); /* NULL is allowed */

/* Runs it, on the stream's launch thread: waits for the compiler, executes, fulfils the outputs. A
 * chunk that fails is run again operator by operator (replay.h). On failure the outputs carry the
 * error, and it is returned unless an input carried it already (then it was reported before).
 * `done`, when not NULL, receives an event for the end of an asynchronous execution, which is
 * waited for where the launch says so. */
tt_status tt_launch_run(tt_launch *launch, struct tt_stream *stream, tt_event **done);

/* -- Messages (report.c); success stays success. Thread-safe. -- */
/* Says what failed, where Python called it, and, if the device's memory has run out, what the
 * program needs and who holds the memory. `launch` is NULL when it is gone. */
tt_status tt_launch_error(tt_status status, struct tt_stream *stream, const tt_origin *origin,
                          const tt_launch *launch);
/* When the device's memory has run out: says how much the largest values hold, and who made them.
 */
tt_status tt_report_memory(tt_status status, struct tt_stream *stream);
/* "a chunk of 3 operators, aten::mm at a.py:1 in f to aten::add at a.py:9 in f", or an operator. */
void tt_origin_print(const tt_origin *origin, tt_text *text);
/* "needs 1.0 MiB of inputs, ...", as far as it is known. */
void tt_launch_print_needs(const tt_origin *origin, const tt_launch *launch, tt_text *text);

#endif
