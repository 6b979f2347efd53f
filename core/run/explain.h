/* Why calls and programs were new: sentences that name what the nearest known one has instead. The
 * last 1,024 are kept; TORCH_TPU_LOG=compile prints them as they come. Thread-safe. */
#ifndef TT_EXPLAIN_H
#define TT_EXPLAIN_H

#include "run/call.h"
#include "run/cut.h"

struct tt_step; /* trace.h */

enum { TT_EXPLAIN_KEPT = 1024 };

/* "aten::mm, called at train.py:12 in step: operand 0 is f32[3,4], not f32[2,4]", as in the
 * nearest known call. Allocation failures shorten the text. */
void tt_explain_call(const tt_call_spec *spec, tt_text *text);
/* Only what differs: "operand 0 is f32[3,4], not f32[2,4]". */
void tt_explain_difference(const tt_call_spec *now, const tt_call_spec *known, tt_text *text);
/* The call is one of the known ones from now on. It must live until tt_explain_reset. */
void tt_explain_learn(const tt_call *call);

/* Where the path to `end` leaves the chunks that are known, or which results are needed that were
 * not before. `sites` are the lines of its operators, `live` as in tt_trace_program. */
void tt_explain_chunk(const struct tt_step *end, const uint8_t *live, const uint32_t *sites,
                      tt_cut why, tt_text *text);

/* Keeps a sentence, prefixed by what was done; deinits the text. */
void tt_explain_keep(const char *done, tt_text *text);
/* Sentences ever kept, and a copy of number i (from 0), which the caller frees with tt_free; NULL
 * if it is no longer, or not yet, kept. */
int64_t tt_explain_count(void);
char *tt_explain_get(int64_t i);
/* Forgets the calls that were learnt. */
void tt_explain_reset(void);

/* -- Forbidding -- */
/* Counts up (+1) and down (-1); while the count is above 0, a program that the process does not
 * know yet is not compiled: whoever asks for it gets FAILED_PRECONDITION. */
void tt_forbid_programs(int change);
bool tt_programs_forbidden(void);

#endif
