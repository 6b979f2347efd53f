/* A launch: one program with its operands, on its way to the device. */
#ifndef TT_LAUNCH_H
#define TT_LAUNCH_H

#include "stream/device.h"
#include "stream/queue.h"

/* What is launched, for messages. Calls, graphs and programs outlive all launches; what was
 * captured does not. */
typedef struct tt_origin {
  tt_program *program; /* NULL: none could be made, or is needed */
  const char *name;    /* of the operator; of a chunk, the last one's */
  uint32_t site;
  const tt_graph *graph; /* a chunk of several operators; else NULL */
  uint32_t first_site;   /* the chunk's first operator's */
  int captured_steps;    /* a captured graph of so many operators; else 0 */
} tt_origin;

typedef struct tt_launch {
  tt_job job;
  struct tt_launch *next; /* in a list of some that belong together */
  tt_device *device;
  tt_origin origin;
  int input_count, output_count, word_count;
  tt_value **inputs, **outputs; /* one reference each, in the graph's order; dropped once started */
  uint32_t *words;              /* packed scalars */
  uint32_t *sites;              /* a chunk's: of each operator */
  const tt_orders *orders;      /* a chunk's: what is carried out in a program's place, or NULL */
  tt_status refused;            /* a chunk's: why there is no program */
  tt_want want;                 /* a chunk's: for its operators' programs, if it is replayed */
  int64_t waited_ns;            /* for its program; set as it is executed */
  bool wait;                    /* for its end */
  bool pinned;                  /* its program is, until it is destroyed */
} tt_launch;

/* One block with room for everything; NULL when memory is out. */
tt_launch *tt_launch_create(tt_device *device, int inputs, int outputs, int words, int sites);
void tt_launch_destroy(tt_launch *launch);
void tt_launch_destroy_list(tt_launch *first); /* NULL is allowed */

/* Executes its program on the calling thread, a queue's: waits for the compiler, and fulfils the
 * outputs, unless it fails. Its inputs are ready. `end`, when not NULL, receives an event for the
 * end of an asynchronous execution, which is waited for where the launch says so. Where memory is
 * out, what the queue has under way is waited for first. */
tt_status tt_launch_execute(tt_launch *launch, tt_event **end);
/* Is it worth another try? Where memory was out, and the queue had something under way that may
 * have held some, which this waits for. */
bool tt_launch_retries(const tt_launch *launch, tt_status status);
/* An input's memory was given to a result. */
bool tt_launch_lost_inputs(const tt_launch *launch);
/* Waits for the inputs; the error that one carries, a clone. What failed and is only written over
 * becomes zeros. */
tt_status tt_launch_check_inputs(tt_launch *launch);

#endif
