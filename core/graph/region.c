#include "graph/region.h"

#include "graph/control.h"

/* By its row the lowering finds the region. */
typedef struct own_row {
  tt_op_row row;
  tt_region region;
} own_row;

static int body_count(const tt_region *region) { return region->kind == TT_REGION_SCAN ? 1 : 2; }

int64_t tt_region_times(const tt_region *region) {
  if (region->kind == TT_REGION_WHILE) return 0;
  return region->kind == TT_REGION_SCAN ? region->length : 1;
}

/* -- Whether the bodies fit -- */

static tt_status differ(const tt_region *region, const char *what, int i, const tt_type *is,
                        const tt_type *wanted) {
  tt_text text = TT_TEXT_INIT;
  tt_text_printf(&text, "%s: %s %d is ", region->name, what, i);
  if (is) tt_type_print(is, &text);
  else tt_text_printf(&text, "missing");
  tt_text_printf(&text, ", expected ");
  if (wanted) tt_type_print(wanted, &text);
  else tt_text_printf(&text, "no more");
  tt_status status = tt_text_status(&text);
  if (!status) status = tt_error(TT_INVALID_ARGUMENT, "%s", text.data);
  tt_text_deinit(&text);
  return status;
}

static tt_status same_types(const tt_region *region, const char *what, int count,
                            const tt_type **types, int expected, const tt_type **wanted) {
  for (int i = 0; i < count || i < expected; i++) {
    const tt_type *is = i < count ? types[i] : NULL, *other = i < expected ? wanted[i] : NULL;
    if (!is || !other || !tt_type_equal(is, other)) return differ(region, what, i, is, other);
  }
  return TT_SUCCESS;
}

static bool is_verdict(const tt_type *type) {
  return type->dtype == TT_BOOL && tt_type_numel(type) == 1;
}

static tt_status check_if(const tt_region *region) {
  const tt_subgraph *yes = region->bodies[0], *no = region->bodies[1];
  if (region->operand_count != 1 || !is_verdict(region->operands[0]))
    return tt_error(TT_INVALID_ARGUMENT, "%s: the predicate must be one bool", region->name);
  TT_TRY(same_types(region, "argument", yes->argument_count + no->argument_count, yes->types, 0,
                    NULL));
  return same_types(region, "result of one branch, as the other's", no->result_count,
                    no->result_types, yes->result_count, yes->result_types);
}

static tt_status check_while(const tt_region *region) {
  const tt_subgraph *test = region->bodies[0], *step = region->bodies[1];
  int n = region->operand_count;
  if (test->result_count != 1 || !is_verdict(test->result_types[0]))
    return tt_error(TT_INVALID_ARGUMENT, "%s: the condition must be one bool", region->name);
  TT_TRY(same_types(region, "argument of the condition", test->argument_count, test->types, n,
                    region->operands));
  TT_TRY(same_types(region, "argument of the step", step->argument_count, step->types, n,
                    region->operands));
  TT_TRY(same_types(region, "result of the step", step->result_count, step->result_types, n,
                    region->operands));
  if (test->stream_count == 0 && step->stream_count == 0) return TT_SUCCESS;
  return tt_error(TT_UNIMPLEMENTED,
                  "%s: a loop whose number of steps is not known draws random numbers",
                  region->name);
}

/* An operand is a stack of `length` slices. */
static bool is_stack(const tt_type *stack, const tt_type *slice, int64_t length) {
  if (stack->rank < 1 || stack->dims[0] != length) return false;
  tt_type rest = tt_type_make(stack->dtype, stack->rank - 1, stack->dims + 1);
  return tt_type_equal(&rest, slice);
}

static tt_status check_scan(const tt_region *region) {
  const tt_subgraph *step = region->bodies[0];
  int carried = region->carried, n = region->operand_count;
  if (carried > step->result_count || carried > step->argument_count || carried > n)
    return tt_error(TT_INVALID_ARGUMENT, "%s: %d values are carried, the step yields %d",
                    region->name, carried, step->result_count);
  if (region->length < 1 || region->length > INT32_MAX)
    return tt_error(TT_INVALID_ARGUMENT, "%s: %lld steps", region->name, (long long)region->length);
  TT_TRY(same_types(region, "carried argument", carried, step->types, carried, region->operands));
  TT_TRY(
      same_types(region, "carried result", carried, step->result_types, carried, region->operands));
  for (int i = carried; i < n || i < step->argument_count; i++)
    if (i >= n || i >= step->argument_count ||
        !is_stack(region->operands[i], step->types[i], region->length))
      return differ(region, "slice of operand", i, i < step->argument_count ? step->types[i] : NULL,
                    i < n ? region->operands[i] : NULL);
  for (int i = carried; i < step->result_count; i++)
    if (step->result_types[i]->rank == TT_MAX_RANK)
      return tt_error(TT_UNIMPLEMENTED, "%s: result %d would have %d dims; the limit is %d",
                      region->name, i, TT_MAX_RANK + 1, TT_MAX_RANK);
  return TT_SUCCESS;
}

static tt_status check(const tt_region *region) {
  if (region->kind == TT_REGION_IF) return check_if(region);
  return region->kind == TT_REGION_WHILE ? check_while(region) : check_scan(region);
}

/* -- The call -- */

static bool has_checks(const tt_subgraph *body) {
  for (int i = 0; i < body->step_count; i++)
    if (body->steps[i].call->spec.checks) return true;
  return false;
}

static tt_status add_tensors(tt_arena *arena, const tt_region *region, tt_call *call) {
  size_t room = (size_t)region->operand_count + (size_t)region->outer_count + 1;
  tt_call_tensor *tensors = tt_arena_alloc(arena, room * sizeof *tensors);
  call->inputs = tt_arena_alloc(arena, room * sizeof *call->inputs);
  call->input_types = tt_arena_alloc(arena, room * sizeof *call->input_types);
  call->reads = tt_arena_alloc(arena, room);
  if (!tensors || !call->inputs || !call->input_types || !call->reads) return tt_out_of_memory();
  call->input_count = call->spec.tensor_count = region->operand_count + region->outer_count;
  for (int i = 0; i < call->input_count; i++) {
    int outer = i - region->operand_count;
    const tt_type *type = outer < 0 ? region->operands[i] : region->outers[outer];
    tensors[i] = (tt_call_tensor){.storage = type, .view = tt_view_whole(type), .same_as = -1};
    call->inputs[i] = i;
    call->input_types[i] = type;
    call->reads[i] = true;
  }
  call->spec.tensors = tensors;
  return TT_SUCCESS;
}

static tt_status add_results(tt_arena *arena, const tt_region *region, tt_call *call) {
  const tt_subgraph *body = tt_region_last(region);
  call->results = tt_arena_alloc(arena, sizeof *call->results * ((size_t)body->result_count + 1));
  if (!call->results) return tt_out_of_memory();
  for (int i = 0; i < body->result_count; i++) {
    tt_type type = *body->result_types[i];
    if (region->kind == TT_REGION_SCAN && i >= region->carried)
      type = tt_type_stack(&type, region->length);
    call->results[i] =
        (tt_call_result){.defined = true, .target = -1, .view = tt_view_whole(&type), .over = -1};
    TT_TRY(tt_type_intern(&type, &call->results[i].storage));
  }
  call->spec.results = call->results;
  call->result_count = call->output_count = call->spec.result_count = body->result_count;
  return TT_SUCCESS;
}

static void lower_region(tt_lower *cx) { tt_region_lower(cx, &((const own_row *)cx->row)->region); }

tt_status tt_region_call(tt_arena *arena, const tt_region *region, tt_call **out) {
  TT_TRY(check(region));
  own_row *row = tt_arena_alloc(arena, sizeof *row);
  tt_call *call = tt_arena_alloc(arena, sizeof *call);
  if (!row || !call) return tt_out_of_memory();
  row->row = (tt_op_row){.name = region->name,
                         .cls = TT_VIEW,
                         .lower = lower_region,
                         .statics = "",
                         .doc = "Control flow."};
  row->region = *region;
  call->name = call->spec.name = region->name;
  call->row = call->spec.row = &row->row;
  for (int i = 0; i < body_count(region); i++) {
    call->word_count += region->bodies[i]->word_count;
    call->spec.checks |= has_checks(region->bodies[i]);
  }
  call->why = "";
  TT_TRY(add_tensors(arena, region, call));
  TT_TRY(add_results(arena, region, call));
  *out = call;
  return TT_SUCCESS;
}
