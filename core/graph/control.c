#include "graph/control.h"

#include "call/lower.h"

#include <string.h>

const tt_subgraph *tt_region_last(const tt_region *region) {
  return region->bodies[region->kind == TT_REGION_WHILE];
}

tt_type tt_type_stack(const tt_type *slice, int64_t length) {
  tt_type stack = {.dtype = slice->dtype, .rank = slice->rank + 1, .dims = {length}};
  memcpy(stack.dims + 1, slice->dims, sizeof *slice->dims * (size_t)slice->rank);
  return stack;
}

/* A region on its way into a program. */
typedef struct lowering {
  tt_lower *cx;
  const tt_region *region;
  tt_checks checks; /* the first one that a body made, for its words */
  tt_node *round;   /* SCAN: the step's number, I64 */
} lowering;

static tt_node *outer_node(const lowering *low, int body, int i) {
  const tt_region *region = low->region;
  return low->cx->tensors[region->operand_count + region->outer_of[body][i]];
}

/* The body's words. In a loop each step draws behind the one before. */
static tt_node *words_of(const lowering *low, const tt_subgraph *body, int word_at) {
  tt_hlo *h = low->cx->h;
  tt_node *words = low->cx->words;
  for (int i = 0; low->round && i < body->scalar_count; i++) {
    const tt_scalar *scalar = &body->scalars[i];
    if (scalar->kind != TT_SCALAR_PHILOX) continue;
    int64_t at = word_at + scalar->at + 2, end = at + 2;
    tt_node *offset = tt_hlo_bitcast(h, tt_hlo_slice(h, words, &at, &end, NULL), TT_I64);
    tt_node *drawn = tt_hlo_const_i(h, TT_I64, body->blocks[scalar->stream]);
    offset = tt_hlo_add(h, offset, tt_hlo_multiply(h, low->round, drawn));
    words = tt_hlo_update_slice(h, words, tt_hlo_bitcast(h, offset, TT_U32), &at);
  }
  return words;
}

static void make_sticky(tt_hlo *h, tt_status status) {
  if (!status) return;
  tt_hlo_fail(h, tt_status_code(status), "%s", tt_status_message(status));
  tt_status_release(status);
}

/* One flag for all that the body's checks found; the first one says what it is about. */
static tt_node *gathered(lowering *low, const tt_checks *checks) {
  tt_hlo *h = low->cx->h;
  tt_node *any = tt_hlo_const_i(h, TT_BOOL, 0);
  for (int i = 0; i < checks->count; i++) any = tt_hlo_or(h, any, checks->flags[i]);
  if (low->checks.count == 0 && checks->count > 0) {
    low->checks.texts[0] = checks->texts[0];
    low->checks.codes[0] = checks->codes[0];
    low->checks.count = 1;
  }
  return any;
}

static void run_step(lowering *low, const tt_step *step, tt_node **slots, tt_node *words,
                     int word_at, tt_checks *checks) {
  tt_hlo *h = low->cx->h;
  const tt_call *call = step->call;
  size_t most = (size_t)call->input_count + 1;
  tt_node **inputs = tt_arena_alloc(tt_hlo_arena(h), sizeof(tt_node *) * most);
  if (!inputs) {
    make_sticky(h, tt_out_of_memory());
    return;
  }
  for (int k = 0; k < call->input_count; k++) inputs[k] = slots[step->inputs[k]];
  tt_call_io io = {.inputs = inputs,
                   .words = words,
                   .word_at = word_at + step->word_at,
                   .outputs = slots + step->first_output,
                   .checks = checks};
  make_sticky(h, tt_call_lower(step->call, low->cx->target, h, &io));
  for (int k = 0; !tt_hlo_failed(h) && k < call->output_count; k++)
    slots[step->first_output + k] = tt_hlo_seal(h, slots[step->first_output + k]);
}

/* Writes what the body yields, and gives what its checks found; NULL on failure. */
static tt_node *run(lowering *low, int which, tt_node *const *arguments, tt_node **results) {
  tt_hlo *h = low->cx->h;
  const tt_subgraph *body = low->region->bodies[which];
  int word_at = low->cx->word_at + (which ? low->region->bodies[0]->word_count : 0);
  tt_node *words = words_of(low, body, word_at);
  tt_checks checks = {.count = 0};
  size_t most = (size_t)body->slot_count + 1;
  tt_node **slots = tt_arena_alloc(tt_hlo_arena(h), sizeof(tt_node *) * most);
  if (!slots) make_sticky(h, tt_out_of_memory());
  if (!slots || tt_hlo_failed(h)) return NULL;
  for (int i = 0; i < body->argument_count; i++) slots[i] = arguments[i];
  for (int i = 0; i < body->outer_count; i++) slots[body->outers[i]] = outer_node(low, which, i);
  for (int i = 0; i < body->step_count && !tt_hlo_failed(h); i++)
    run_step(low, &body->steps[i], slots, words, word_at, &checks);
  if (tt_hlo_failed(h)) return NULL;
  for (int i = 0; i < body->result_count; i++) results[i] = slots[body->results[i]];
  return gathered(low, &checks);
}

static tt_node *verdict(tt_hlo *h, tt_node *x) { return tt_hlo_reshape(h, x, 0, NULL); }

static void branch(lowering *low, int which, tt_node **results) {
  tt_node *found = run(low, which, NULL, results);
  if (low->cx->checks) results[low->region->bodies[which]->result_count] = found;
}

static void on_true(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)h, (void)args;
  branch(user, 0, results);
}

static void on_false(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)h, (void)args;
  branch(user, 1, results);
}

static void lower_if(lowering *low, tt_node **results) {
  tt_hlo *h = low->cx->h;
  const tt_subgraph *body = low->region->bodies[0];
  int n = body->result_count;
  tt_type *types = tt_arena_alloc(tt_hlo_arena(h), sizeof *types * ((size_t)n + 1));
  if (!types) {
    make_sticky(h, tt_out_of_memory());
    return;
  }
  for (int i = 0; i < n; i++) types[i] = *body->result_types[i];
  types[n] = (tt_type){.dtype = TT_BOOL};
  tt_hlo_if(h, verdict(h, low->cx->tensors[0]), n + low->cx->checks, types, on_true, on_false, low,
            results);
}

/* A loop's values are the operands, then what its checks found. */
static void goes_on(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)run(user, 0, args, results);
  if (!tt_hlo_failed(h)) results[0] = verdict(h, results[0]);
}

static void next(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  lowering *low = user;
  int n = low->region->operand_count;
  tt_node *found = run(low, 1, args, results);
  if (found && low->cx->checks) results[n] = tt_hlo_or(h, args[n], found);
}

static void lower_while(lowering *low, tt_node **values, tt_node **results) {
  tt_hlo *h = low->cx->h;
  int n = low->region->operand_count;
  for (int i = 0; i < n; i++) values[i] = low->cx->tensors[i];
  values[n] = tt_hlo_const_i(h, TT_BOOL, 0);
  tt_hlo_while(h, n + low->cx->checks, values, goes_on, next, low, results);
}

/* A scan's values are its results, then what its checks found, then the number of the step. */
static int scan_values(const lowering *low) {
  return low->region->bodies[0]->result_count + low->cx->checks + 1;
}

static void has_steps(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const lowering *low = user;
  tt_node *length = tt_hlo_const_i(h, TT_I64, low->region->length);
  results[0] = tt_hlo_compare(h, TT_LT, args[scan_values(low) - 1], length);
}

static void starts_at(tt_hlo *h, tt_node *round, tt_node **starts) {
  starts[0] = round;
  for (int i = 1; i < TT_MAX_RANK; i++) starts[i] = tt_hlo_const_i(h, TT_I64, 0);
}

static tt_node *slice_of(tt_hlo *h, tt_node *stack, tt_node *round) {
  tt_node *starts[TT_MAX_RANK];
  tt_type one = stack->type;
  starts_at(h, round, starts);
  one.dims[0] = 1;
  tt_node *slice = tt_hlo_dynamic_slice(h, stack, starts, one.dims);
  return tt_hlo_reshape(h, slice, one.rank - 1, one.dims + 1);
}

static tt_node *with_slice(tt_hlo *h, tt_node *stack, tt_node *slice, tt_node *round) {
  tt_node *starts[TT_MAX_RANK];
  tt_type one = tt_type_stack(&slice->type, 1);
  starts_at(h, round, starts);
  return tt_hlo_dynamic_update_slice(h, stack, tt_hlo_reshape(h, slice, one.rank, one.dims),
                                     starts);
}

static void scan_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  lowering *low = user;
  const tt_region *region = low->region;
  int last = scan_values(low) - 1, yielded = region->bodies[0]->result_count;
  size_t most = (size_t)region->operand_count + 1;
  tt_node **given = tt_arena_alloc(tt_hlo_arena(h), sizeof(tt_node *) * most);
  if (!given) {
    make_sticky(h, tt_out_of_memory());
    return;
  }
  low->round = args[last];
  for (int i = 0; i < region->operand_count; i++)
    given[i] = i < region->carried ? args[i] : slice_of(h, low->cx->tensors[i], low->round);
  tt_node *found = run(low, 0, given, results);
  if (!found) return;
  for (int i = region->carried; i < yielded; i++)
    results[i] = with_slice(h, args[i], results[i], low->round);
  if (low->cx->checks) results[yielded] = tt_hlo_or(h, args[yielded], found);
  results[last] = tt_hlo_add(h, low->round, tt_hlo_const_i(h, TT_I64, 1));
}

static void lower_scan(lowering *low, tt_node **values, tt_node **results) {
  tt_hlo *h = low->cx->h;
  const tt_region *region = low->region;
  const tt_subgraph *body = region->bodies[0];
  for (int i = 0; i < body->result_count; i++) {
    tt_type stack = i < region->carried ? (tt_type){.dtype = TT_BOOL}
                                        : tt_type_stack(body->result_types[i], region->length);
    values[i] = i < region->carried ? low->cx->tensors[i] : tt_hlo_zeros(h, &stack);
  }
  values[body->result_count] = tt_hlo_const_i(h, TT_BOOL, 0);
  values[scan_values(low) - 1] = tt_hlo_const_i(h, TT_I64, 0);
  tt_hlo_while(h, scan_values(low), values, has_steps, scan_step, low, results);
}

static void add_check(tt_lower *cx, const tt_checks *checks, tt_node *found) {
  if (!cx->check_flags || cx->check_count == TT_MAX_CHECKS) return;
  cx->check_flags[cx->check_count] = found;
  cx->check_texts[cx->check_count] = checks->texts[0];
  cx->check_codes[cx->check_count++] = checks->codes[0];
}

void tt_region_lower(tt_lower *cx, const tt_region *region) {
  lowering low = {.cx = cx, .region = region};
  int n = tt_region_last(region)->result_count;
  size_t most = (size_t)n + 2;
  tt_node **results = tt_arena_alloc(tt_hlo_arena(cx->h), 2 * most * sizeof(tt_node *));
  if (!results) {
    make_sticky(cx->h, tt_out_of_memory());
    return;
  }
  if (region->kind == TT_REGION_IF) lower_if(&low, results);
  else if (region->kind == TT_REGION_WHILE) lower_while(&low, results + most, results);
  else lower_scan(&low, results + most, results);
  tt_hlo_where(cx->h, region->name);
  if (tt_hlo_failed(cx->h)) return;
  for (int i = 0; i < n; i++) cx->results[i] = results[i];
  cx->result_count = n;
  if (low.checks.count) add_check(cx, &low.checks, results[n]);
}
