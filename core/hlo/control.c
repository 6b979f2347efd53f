#include "hlo/internal.h"

#include <string.h>

static bool rule_sort(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *first = tt_operand_type(in, 0);
  const tt_attr *dim = tt_attr_find(in, "dimension");
  int n = in->operand_count;
  if (!dim || dim->value < 0 || dim->value >= first->rank || in->result_count != n)
    return tt_hlo_bad(why, "there is no dimension %lld in %s", dim ? (long long)dim->value : -1LL,
                      tt_hlo_show(why, first));
  tt_type *types = tt_malloc(2 * (size_t)n * sizeof *types), verdict = {.dtype = TT_BOOL};
  if (!types) return tt_hlo_bad_memory(why);
  bool ok = true;
  for (int i = 0; i < n; i++) {
    const tt_type *x = tt_operand_type(in, i);
    if (ok && !tt_type_same_dims(x, first))
      ok = tt_hlo_bad(why, "operand %d is %s, operand 0 is %s", i, tt_hlo_show(why, x),
                      tt_hlo_show(why, first));
    types[2 * i] = types[2 * i + 1] = (tt_type){.dtype = x->dtype};
    out[i] = *x;
  }
  ok = ok && tt_region_is(in, 0, 2 * n, types, 1, &verdict, why);
  tt_free(types);
  return ok;
}

static bool rule_while(const tt_instr *in, tt_type *out, tt_why *why) {
  int n = in->operand_count;
  tt_type verdict = {.dtype = TT_BOOL};
  if (in->result_count != n) return tt_hlo_bad(why, "%d operands, %d results", n, in->result_count);
  for (int i = 0; i < n; i++) out[i] = *tt_operand_type(in, i);
  return tt_region_is(in, 0, n, out, 1, &verdict, why) && tt_region_is(in, 1, n, out, n, out, why);
}

static bool rule_if(const tt_instr *in, tt_type *out, tt_why *why) {
  if (tt_operand_type(in, 0)->rank)
    return tt_hlo_bad(why, "the predicate is %s, expected rank 0",
                      tt_hlo_show(why, tt_operand_type(in, 0)));
  int n = in->result_count;
  return tt_region_is(in, 0, 0, NULL, n, out, why) && tt_region_is(in, 1, 0, NULL, n, out, why);
}

static bool rule_custom_call(const tt_instr *in, tt_type *out, tt_why *why) {
  (void)out;
  if (!tt_attr_find(in, "call_target_name")) return tt_hlo_bad(why, "no call_target_name");
  return true;
}

void tt_hlo_sort(tt_hlo *h, int n, tt_node *const *xs, int dim, bool stable, tt_body before,
                 void *user, tt_node **results) {
  bool usable = tt_hlo_usable(h, TT_OPCODE_sort, xs, n);
  tt_type *types = tt_hlo_alloc(h, 2 * (size_t)n, sizeof *types);
  for (int i = 0; usable && types && i < n; i++)
    types[2 * i] = types[2 * i + 1] = (tt_type){.dtype = xs[i]->type.dtype};
  tt_block *region =
      usable && types ? tt_hlo_region(h, TT_OPCODE_sort, 2 * n, types, 1, before, user) : NULL;
  if (!region) {
    tt_hlo_poison_all(h, results, n);
    return;
  }
  tt_attr attrs[] = {tt_attr_i64("dimension", dim), tt_attr_bool("is_stable", stable)};
  tt_instr draft = {.op = TT_OPCODE_sort,
                    .rule = rule_sort,
                    .operands = xs,
                    .operand_count = n,
                    .attrs = attrs,
                    .attr_count = 2,
                    .regions = &region,
                    .region_count = 1,
                    .result_count = n};
  tt_hlo_emit_all(h, &draft, types, results);
}

void tt_hlo_while(tt_hlo *h, int n, tt_node *const *inits, tt_body cond, tt_body body, void *user,
                  tt_node **results) {
  bool usable = tt_hlo_usable(h, TT_OPCODE_while, inits, n);
  tt_type *types = tt_hlo_alloc(h, (size_t)n, sizeof *types);
  for (int i = 0; usable && types && i < n; i++) types[i] = inits[i]->type;
  tt_block *regions[2] = {NULL, NULL};
  if (usable && types) {
    regions[0] = tt_hlo_region(h, TT_OPCODE_while, n, types, 1, cond, user);
    regions[1] = tt_hlo_region(h, TT_OPCODE_while, n, types, n, body, user);
  }
  if (!regions[0] || !regions[1]) {
    tt_hlo_poison_all(h, results, n);
    return;
  }
  tt_instr draft = {.op = TT_OPCODE_while,
                    .rule = rule_while,
                    .operands = inits,
                    .operand_count = n,
                    .regions = regions,
                    .region_count = 2,
                    .result_count = n};
  tt_hlo_emit_all(h, &draft, types, results);
}

typedef struct counter {
  int64_t end;
  tt_body body;
  void *user;
} counter;

static void is_below_end(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  tt_node *end = tt_hlo_const_i(h, args[0]->type.dtype, ((const counter *)user)->end);
  results[0] = tt_hlo_compare(h, TT_LT, args[0], end);
}

static void run_and_count(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const counter *c = user;
  c->body(h, args, results, c->user);
  results[0] = tt_hlo_add(h, args[0], tt_hlo_const_i(h, args[0]->type.dtype, 1));
}

void tt_hlo_count_up(tt_hlo *h, int64_t end, int n, tt_node *const *inits, tt_body body, void *user,
                     tt_node **results) {
  counter c = {end, body, user};
  tt_hlo_while(h, n, inits, is_below_end, run_and_count, &c, results);
}

void tt_hlo_if(tt_hlo *h, tt_node *pred, int n, const tt_type *types, tt_body on_true,
               tt_body on_false, void *user, tt_node **results) {
  tt_block *regions[2] = {NULL, NULL};
  tt_type *copy = tt_hlo_alloc(h, (size_t)n, sizeof *copy);
  if (copy && n) memcpy(copy, types, (size_t)n * sizeof *copy);
  if (tt_hlo_usable(h, TT_OPCODE_if, &pred, 1)) {
    regions[0] = tt_hlo_region(h, TT_OPCODE_if, 0, NULL, n, on_true, user);
    regions[1] = tt_hlo_region(h, TT_OPCODE_if, 0, NULL, n, on_false, user);
  }
  if (!regions[0] || !regions[1]) {
    tt_hlo_poison_all(h, results, n);
    return;
  }
  tt_instr draft = {.op = TT_OPCODE_if,
                    .rule = rule_if,
                    .operands = &pred,
                    .operand_count = 1,
                    .regions = regions,
                    .region_count = 2,
                    .result_count = n};
  tt_hlo_emit_all(h, &draft, copy, results);
}

/* `more` is one more attribute, or has no name. */
static void custom_call(tt_hlo *h, const char *target, const char *config, int n,
                        tt_node *const *xs, int results_count, const tt_type *types, tt_attr more,
                        tt_node **results) {
  char *name = tt_arena_printf(&h->arena, "\"%s\"", target);
  bool plain = config && config[0] == '"';
  char *dict = tt_arena_printf(&h->arena, plain ? "%s" : "{%s}", config ? config : "");
  tt_type *copy = tt_hlo_alloc(h, (size_t)results_count, sizeof *copy);
  if (!name || !dict) tt_hlo_fail_memory(h);
  if (h->error) {
    tt_hlo_poison_all(h, results, results_count);
    return;
  }
  if (results_count) memcpy(copy, types, (size_t)results_count * sizeof *copy);
  tt_attr attrs[] = {tt_attr_text("call_target_name", name),
                     tt_attr_i32("api_version", plain ? 1 : 4),
                     tt_attr_text("backend_config", dict),
                     tt_attr_bool("has_side_effect", results_count == 0), more};
  tt_instr draft = {.op = TT_OPCODE_custom_call,
                    .rule = rule_custom_call,
                    .operands = xs,
                    .operand_count = n,
                    .attrs = attrs,
                    .attr_count = more.name ? 5 : 4,
                    .result_count = results_count};
  tt_hlo_emit_all(h, &draft, copy, results);
}

void tt_hlo_custom_call(tt_hlo *h, const char *target, const char *config, int n,
                        tt_node *const *xs, int results_count, const tt_type *types,
                        tt_node **results) {
  custom_call(h, target, config, n, xs, results_count, types, (tt_attr){.name = NULL}, results);
}

/* In the arena; NULL: out of memory. */
static char *print_aliases(tt_hlo *h, bool one_result, const tt_over *over, int count) {
  tt_text text = TT_TEXT_INIT;
  tt_text_printf(&text, "[");
  for (int i = 0; i < count; i++) {
    tt_text_printf(&text, "%s#stablehlo.output_operand_alias<output_tuple_indices = [",
                   i ? ", " : "");
    if (!one_result) tt_text_printf(&text, "%d", over[i].result);
    tt_text_printf(&text, "], operand_index = %d, operand_tuple_indices = []>", over[i].operand);
  }
  tt_text_printf(&text, "]");
  char *copy = text.failed ? NULL : tt_arena_copy(&h->arena, text.data, text.size + 1);
  tt_text_deinit(&text);
  return copy;
}

void tt_hlo_custom_call_over(tt_hlo *h, const char *target, const char *config, int n,
                             tt_node *const *xs, int results_count, const tt_type *types,
                             const tt_over *over, int over_count, tt_node **results) {
  tt_attr aliases = {.name = NULL};
  if (over_count) {
    char *text = print_aliases(h, results_count == 1, over, over_count);
    if (!text) tt_hlo_fail_memory(h);
    aliases = tt_attr_text("output_operand_aliases", text ? text : "");
  }
  custom_call(h, target, config, n, xs, results_count, types, aliases, results);
}
