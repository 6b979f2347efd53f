/* A section of a stream: operators in the order they were recorded, with their values, lines and
 * packed scalars. What a graph is found for and a launch is made of. The open chunk is one
 * (chunk.h); a piece of a chunk is another (fuse.h). All functions: under the device's lock. */
#ifndef TT_SECTION_H
#define TT_SECTION_H

#include "graph/cut.h"
#include "stream/launch.h"
#include "stream/policy.h"

typedef struct tt_section {
  tt_device *device;
  tt_trace_node *at; /* the last operator; the trace's root when the section is empty */
  tt_value **slots;  /* one reference each */
  uint8_t *is_input; /* [slot_count] */
  uint8_t *live;     /* [slot_count] results that somebody besides the section needs */
  uint32_t *sites;   /* [at->depth] */
  uint32_t *words;
  bool ordered; /* it is launched as orders (graph/ordered.h), and not as a program */
  size_t slot_capacity, input_capacity, live_capacity, site_capacity, word_capacity;
  int slot_count, word_count;
} tt_section;

void tt_section_init(tt_section *section, tt_device *device);
void tt_section_deinit(tt_section *section);
/* Lets its values go. */
void tt_section_empty(tt_section *section);
/* Room for so many of each in all. */
tt_status tt_section_reserve(tt_section *section, int slots, int steps, int words);

/* -- Once `live` is filled in -- */
bool tt_section_any_live(const tt_section *section);
/* The program of *out, which has none; where *out is NULL, of a new graph. `why` the section ended.
 * *out has the graph also where no program could be made, or is wanted; NULL: there is no graph. */
tt_status tt_section_program(tt_section *section, tt_cut why, tt_want want, tt_live_set **out);
/* Its launch as one program, or as orders. `live_set` NULL: a new one. If there is no program, the
 * launch has the reason, and will be run operator by operator, unless the policy forbids new
 * programs, or there is but one operator. */
tt_status tt_section_launch(tt_section *section, tt_live_set *live_set, tt_cut why,
                            const tt_policy *policy, tt_launch **out);

#endif
