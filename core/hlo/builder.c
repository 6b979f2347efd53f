#include "hlo/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tt_status tt_hlo_create(tt_hlo **out) {
  *out = NULL;
  tt_hlo *h = tt_calloc(1, sizeof *h);
  if (!h) return tt_out_of_memory();
  h->poison.node = (tt_node){.type = {.dtype = TT_F32}, .id = -1};
  h->main = h->current = tt_arena_alloc(&h->arena, sizeof *h->main);
  if (!h->main) {
    tt_hlo_destroy(h);
    return tt_out_of_memory();
  }
  h->main->owner = h;
  *out = h;
  return TT_SUCCESS;
}

void tt_hlo_destroy(tt_hlo *h) {
  if (!h) return;
  tt_status_release(h->error);
  tt_free(h->params);
  tt_free(h->donations);
  tt_intern_deinit(&h->numbered);
  tt_text_deinit(&h->key);
  tt_arena_deinit(&h->arena);
  tt_free(h);
}

tt_node *tt_hlo_fail(tt_hlo *h, tt_code code, const char *format, ...) {
  if (h->error) return &h->poison.node;
  char message[1024];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(message, sizeof message, format, args);
  va_end(args);
  h->error = h->where ? tt_error(code, "%s: %s", h->where, message) : tt_error(code, "%s", message);
  return &h->poison.node;
}

bool tt_hlo_failed(const tt_hlo *h) { return h->error != TT_SUCCESS; }
void tt_hlo_where(tt_hlo *h, const char *where) { h->where = where; }
tt_precision tt_hlo_precision(tt_hlo *h, tt_precision precision) {
  tt_precision before = h->precision;
  h->precision = precision;
  return before;
}
void tt_hlo_choose_extremes(tt_hlo *h) { h->chooses = true; }
tt_arena *tt_hlo_arena(tt_hlo *h) { return &h->arena; }
int tt_hlo_size(const tt_hlo *h) { return h->instr_count; }

int64_t tt_hlo_largest(const tt_hlo *h) { return h->largest; }

bool tt_hlo_convolves(const tt_hlo *h) { return h->convolves; }
tt_node *tt_hlo_poison(tt_hlo *h) { return &h->poison.node; }

void tt_hlo_poison_all(tt_hlo *h, tt_node **results, int count) {
  for (int i = 0; i < count; i++) results[i] = &h->poison.node;
}

/* An allocation failed: makes that stick. */
void tt_hlo_fail_memory(tt_hlo *h) {
  if (!h->error) h->error = tt_out_of_memory();
}

void *tt_hlo_alloc(tt_hlo *h, size_t count, size_t size) {
  size_t bytes;
  void *memory = tt_mul_size(count, size, &bytes) ? tt_arena_alloc(&h->arena, bytes) : NULL;
  if (!memory) tt_hlo_fail_memory(h);
  return memory;
}

const void *tt_hlo_copied(tt_hlo *h, const void *data, size_t size) {
  void *memory = tt_arena_copy(&h->arena, data, size);
  if (!memory) tt_hlo_fail_memory(h);
  return memory;
}

const int64_t *tt_hlo_widen(tt_hlo *h, const int *values, int count) {
  int64_t *wide = tt_hlo_alloc(h, count > 0 ? (size_t)count : 0, sizeof *wide);
  for (int i = 0; wide && i < count; i++) wide[i] = values[i];
  return wide;
}

const int64_t *tt_hlo_filled(tt_hlo *h, const int64_t *values, int count, int64_t otherwise) {
  if (values) return values;
  int64_t *filled = tt_hlo_alloc(h, (size_t)count, sizeof *filled);
  for (int i = 0; filled && i < count; i++) filled[i] = otherwise;
  return filled;
}

bool tt_hlo_usable(tt_hlo *h, int op, tt_node *const *nodes, int count) {
  if (h->error) return false;
  for (int i = 0; i < count; i++) {
    const tt_hlo_value *value = (const tt_hlo_value *)nodes[i];
    if (value && value->block && value->block->owner == h) continue;
    const char *why = value ? "belongs to another builder" : "is missing";
    tt_hlo_fail(h, TT_INTERNAL, "%s: operand %d %s", tt_hlo_info(op)->name, i, why);
    return false;
  }
  return true;
}

bool tt_hlo_rank_ok(tt_hlo *h, int rank, const char *what) {
  if (rank >= 0 && rank <= TT_MAX_RANK) return true;
  tt_hlo_fail(h, TT_INVALID_ARGUMENT, "%s: a tensor of %d dimensions; the limit is %d", what, rank,
              TT_MAX_RANK);
  return false;
}

tt_node *tt_hlo_param(tt_hlo *h, const tt_type *type) {
  int64_t bytes;
  if (h->error) return &h->poison.node;
  if (!tt_type_bytes(type, &bytes))
    return tt_hlo_fail(h, TT_INVALID_ARGUMENT, "parameter %zu has a malformed type or is too large",
                       h->param_count);
  if (h->param_count == TT_HLO_MAX_PARAMS)
    return tt_hlo_fail(h, TT_RESOURCE_EXHAUSTED, "more than %d parameters", TT_HLO_MAX_PARAMS);
  tt_hlo_value *value = tt_hlo_alloc(h, 1, sizeof *value);
  tt_status grown =
      tt_grow((void **)&h->params, &h->param_capacity, h->param_count + 1, sizeof *h->params);
  if (!value || grown) {
    tt_hlo_fail_memory(h);
    tt_status_release(grown);
    return &h->poison.node;
  }
  *value = (tt_hlo_value){.node = {.type = *type, .id = h->next_id++}, .block = h->main};
  h->params[h->param_count++] = value;
  return &value->node;
}

void tt_hlo_donate(tt_hlo *h, int param, int result) {
  if (h->error) return;
  if (param < 0 || (size_t)param >= h->param_count || result < 0) {
    tt_hlo_fail(h, TT_INTERNAL,
                "donation of parameter %d to result %d: no such parameter or result", param,
                result);
    return;
  }
  tt_status grown = tt_grow((void **)&h->donations, &h->donation_capacity, h->donation_count + 1,
                            sizeof *h->donations);
  if (grown) {
    tt_hlo_fail_memory(h);
    tt_status_release(grown);
    return;
  }
  h->donations[h->donation_count++] = (tt_donation){param, result};
}
