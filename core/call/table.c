#include "call/table.h"

#include "call/known.h"
#include "call/lower.h"
#include "call/spec.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { MOST_REFUSED = 65536, MOST_ALIASES = 4096 }; /* no more are remembered */

/* A key that has a general call. */
typedef struct alias {
  tt_call *call;
  int count;
  int64_t values[]; /* of its places */
} alias;

struct tt_call_table {
  pthread_rwlock_t lock;
  tt_intern calls; /* and aliases, told apart by the lowest bit of the pointer */
  size_t alias_count;
  tt_intern refused; /* to anything but NULL */
  tt_families families;
  uint64_t epoch;
  tt_known_calls known;
  tt_growing growing;
};

/* -- Finding -- */

static alias *as_alias(void *found) {
  return (uintptr_t)found & 1 ? (alias *)((uintptr_t)found - 1) : NULL;
}

tt_call *tt_call_find(tt_call_table *table, const tt_key *key, tt_places *places) {
  if (places) places->count = 0;
  if (key->failed) return NULL;
  pthread_rwlock_rdlock(&table->lock);
  void *found = tt_intern_find(&table->calls, key->data, key->size);
  pthread_rwlock_unlock(&table->lock);
  const alias *other = as_alias(found);
  if (!other) return found;
  if (!places) return NULL;
  places->count = other->count;
  memcpy(places->values, other->values, sizeof *other->values * (size_t)other->count);
  return other->call;
}

/* A key is found at once from now on, if memory allows. */
static void add_alias(tt_call_table *table, const tt_key *key, tt_call *call,
                      const tt_places *places) {
  size_t size = sizeof *places->values * (size_t)places->count;
  alias *made = tt_malloc(sizeof *made + size);
  if (!made) return;
  made->call = call;
  made->count = places->count;
  memcpy(made->values, places->values, size);
  pthread_rwlock_wrlock(&table->lock);
  bool added =
      table->alias_count < MOST_ALIASES && !tt_intern_find(&table->calls, key->data, key->size);
  tt_status status =
      added ? tt_intern_add(&table->calls, key->data, key->size, (char *)made + 1) : TT_SUCCESS;
  added = added && !status;
  table->alias_count += added;
  pthread_rwlock_unlock(&table->lock);
  tt_status_release(status);
  if (!added) tt_free(made);
}

tt_call *tt_call_find_general(tt_call_table *table, const tt_op_row *row, const tt_key *key,
                              size_t first, tt_places *places) {
  pthread_rwlock_rdlock(&table->lock);
  tt_call *call = tt_families_find(&table->families, row, key, first, places);
  bool room = table->alias_count < MOST_ALIASES;
  pthread_rwlock_unlock(&table->lock);
  if (call && room) add_alias(table, key, call, places);
  return call;
}

bool tt_call_refused(tt_call_table *table, const tt_key *key) {
  pthread_rwlock_rdlock(&table->lock);
  bool refused = !key->failed && tt_intern_find(&table->refused, key->data, key->size);
  pthread_rwlock_unlock(&table->lock);
  return refused;
}

int64_t tt_call_table_size(tt_call_table *table) {
  pthread_rwlock_rdlock(&table->lock);
  int64_t count = (int64_t)(table->calls.count - table->alias_count);
  pthread_rwlock_unlock(&table->lock);
  return count;
}

/* -- Learning: what the lowering says of a call's results -- */

static tt_status lower_alone(tt_call *call, const tt_target *target, tt_hlo *h, tt_call_io *io) {
  tt_arena *arena = tt_hlo_arena(h);
  size_t outputs = (size_t)call->spec.result_count + TT_MAX_CHECKS;
  tt_node **inputs = tt_arena_alloc(arena, sizeof *inputs * ((size_t)call->input_count + 1));
  io->outputs = tt_arena_alloc(arena, sizeof *io->outputs * outputs);
  if (!inputs || !io->outputs) return tt_out_of_memory();
  for (int i = 0; i < call->input_count; i++)
    inputs[i] = tt_hlo_param(h, call->spec.tensors[call->inputs[i]].storage);
  io->inputs = inputs;
  io->learn = true;
  io->words = tt_call_scalars_param(h, call->word_count);
  return tt_call_lower(call, target, h, io);
}

/* The text is only hashed: it tells what the call computes, in every process alike. */
static tt_status learn(tt_call *call, const tt_target *target) {
  tt_hlo *h = NULL;
  tt_text text = TT_TEXT_INIT;
  tt_checks checks = {.count = 0};
  tt_call_io io = {.checks = &checks};
  TT_TRY(tt_hlo_create(&h));
  if (target->xla_cpu) tt_hlo_choose_extremes(h);
  tt_status status = lower_alone(call, target, h, &io);
  for (int i = 0; i < checks.count; i++) io.outputs[call->output_count + i] = checks.flags[i];
  if (!status) status = tt_hlo_finish(h, io.outputs, call->output_count + checks.count, &text);
  if (!status) call->hash = tt_hash_bytes(text.data, text.size, 0);
  for (int i = 0; !status && i < call->input_count; i++)
    call->reads[i] = tt_hlo_is_needed(io.inputs[i]);
  tt_text_deinit(&text);
  tt_hlo_destroy(h);
  return status;
}

/* -- Making calls -- */

static void destroy(tt_call *call) {
  if (!call) return;
  tt_arena_deinit(&call->arena);
  tt_free(call);
}

static tt_status fill(tt_call *call, const tt_call_spec *spec, const tt_target *target) {
  TT_TRY(tt_spec_copy(&call->arena, spec, &call->spec));
  call->name = call->spec.name;
  call->row = spec->row;
  call->target = target;
  call->result_count = spec->result_count;
  call->results =
      tt_arena_alloc(&call->arena, sizeof *call->results * ((size_t)spec->result_count + 1));
  call->inputs =
      tt_arena_alloc(&call->arena, sizeof *call->inputs * ((size_t)spec->tensor_count + 1));
  call->input_types =
      tt_arena_alloc(&call->arena, sizeof *call->input_types * ((size_t)spec->tensor_count + 1));
  call->reads = tt_arena_alloc(&call->arena, (size_t)spec->tensor_count + 1);
  if (!call->results || !call->inputs || !call->input_types || !call->reads)
    return tt_out_of_memory();
  for (int i = 0; i < spec->tensor_count; i++) {
    assert(spec->tensors[i].same_as < i);
    if (spec->tensors[i].undefined || spec->tensors[i].same_as >= 0) continue;
    call->input_types[call->input_count] = spec->tensors[i].storage;
    call->inputs[call->input_count++] = i;
  }
  for (int i = 0; i < spec->scalar_count; i++)
    call->word_count += tt_scalar_words(spec->scalars[i]);
  TT_TRY(learn(call, target));
  assert(call->output_count <= call->result_count);
  return TT_SUCCESS;
}

static tt_status keep_reason(tt_call *call, const tt_text *why) {
  const char *text = why->data ? why->data : "";
  call->why = tt_arena_copy(&call->arena, text, strlen(text) + 1);
  return call->why ? TT_SUCCESS : tt_out_of_memory();
}

/* *out is the call, or an equal one that was there before, or NULL where an alias was; then the
 * call is gone. */
static tt_status intern(tt_call_table *table, const tt_key *key, tt_call *call, tt_call **out) {
  tt_status status = TT_SUCCESS;
  pthread_rwlock_wrlock(&table->lock);
  void *found = tt_intern_find(&table->calls, key->data, key->size);
  *out = as_alias(found) ? NULL : found;
  if (!found) status = tt_intern_add(&table->calls, key->data, key->size, call);
  pthread_rwlock_unlock(&table->lock);
  if (found || status) {
    destroy(call);
    return status;
  }
  *out = call;
  tt_known_calls_add(&table->known, call);
  tt_count_add(TT_COUNT_CALLS_NEW, 1);
  tt_growth_note(TT_GROWTH_CALLS, 1);
  return TT_SUCCESS;
}

void tt_call_refuse(tt_call_table *table, const tt_key *key) {
  pthread_rwlock_wrlock(&table->lock);
  bool known = tt_intern_find(&table->refused, key->data, key->size);
  if (!known && table->refused.count < MOST_REFUSED)
    tt_status_release(tt_intern_add(&table->refused, key->data, key->size, table));
  pthread_rwlock_unlock(&table->lock);
}

tt_status tt_call_create(tt_call_table *table, const tt_key *key, const tt_call_spec *spec,
                         const tt_target *target, tt_call **out) {
  if (key->failed) return tt_out_of_memory();
  tt_call *call = tt_calloc(1, sizeof *call);
  if (!call) return tt_out_of_memory();
  tt_text why = TT_TEXT_INIT;
  tt_known_calls_explain(&table->known, spec, &why);
  call->table = table;
  tt_status status = fill(call, spec, target);
  if (!status) status = keep_reason(call, &why);
  if (tt_status_code(status) == TT_UNIMPLEMENTED) tt_call_refuse(table, key);
  if (status) destroy(call);
  else status = intern(table, key, call, out);
  if (!status && *out == call) tt_journal_keep("new call", &why);
  else tt_text_deinit(&why);
  return status;
}

static tt_status create_general(tt_call_table *table, const tt_general *general,
                                const tt_target *target, tt_call **out) {
  tt_status status = tt_call_create(table, &general->key, &general->spec, target, out);
  pthread_rwlock_wrlock(&table->lock);
  tt_families_keep(general, status ? NULL : *out);
  pthread_rwlock_unlock(&table->lock);
  return status;
}

tt_status tt_call_create_member(tt_call_table *table, const tt_key *key, size_t first,
                                const tt_call_spec *spec, const tt_target *target,
                                tt_places *places, tt_call **out) {
  tt_general general;
  places->count = 0;
  pthread_rwlock_rdlock(&table->lock);
  bool wanted = tt_families_want(&table->families, key, first, spec, &general);
  pthread_rwlock_unlock(&table->lock);
  tt_status status = wanted ? create_general(table, &general, target, out) : TT_SUCCESS;
  if (wanted && !status) *places = general.places;
  if (wanted) tt_general_deinit(&general);
  if (wanted && !status) return TT_SUCCESS;
  tt_status_release(status); /* as it is, the call works, or says better why not */
  TT_TRY(tt_call_create(table, key, spec, target, out));
  if (!*out) *out = tt_call_find(table, key, places); /* another thread was faster */
  pthread_rwlock_wrlock(&table->lock);
  tt_families_add(&table->families, key, first, spec);
  pthread_rwlock_unlock(&table->lock);
  return TT_SUCCESS;
}

/* -- The table -- */

tt_status tt_call_table_create(tt_call_table **out) {
  tt_call_table *table = tt_calloc(1, sizeof *table);
  if (!table) return tt_out_of_memory();
  pthread_rwlock_init(&table->lock, NULL);
  tt_known_calls_init(&table->known);
  tt_growing_init(&table->growing);
  *out = table;
  return TT_SUCCESS;
}

void tt_call_table_destroy(tt_call_table *table) {
  if (!table) return;
  tt_call_table_reclaim(table);
  tt_known_calls_deinit(&table->known);
  tt_growing_deinit(&table->growing);
  pthread_rwlock_destroy(&table->lock);
  tt_free(table);
}

tt_growing *tt_call_table_growing(tt_call_table *table) { return &table->growing; }

void tt_call_table_lock(tt_call_table *table) { pthread_rwlock_wrlock(&table->lock); }
void tt_call_table_unlock(tt_call_table *table) { pthread_rwlock_unlock(&table->lock); }

static void drop(void *value) {
  if (as_alias(value)) tt_free(as_alias(value));
  else destroy(value);
}

void tt_call_table_reclaim(tt_call_table *table) {
  tt_known_calls_clear(&table->known);
  for (size_t i = 0; i < table->calls.capacity; i++)
    if (table->calls.entries[i].key) drop(table->calls.entries[i].value);
  tt_intern_deinit(&table->calls);
  table->alias_count = 0;
  tt_intern_deinit(&table->refused);
  tt_families_clear(&table->families);
  table->epoch++;
}

uint64_t tt_call_table_epoch(tt_call_table *table) {
  pthread_rwlock_rdlock(&table->lock);
  uint64_t now = table->epoch;
  pthread_rwlock_unlock(&table->lock);
  return now;
}
