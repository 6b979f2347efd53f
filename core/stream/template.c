#include "run/template.h"

#include "run/forget.h"

#include <string.h>

enum { MAX_STEPS = 4096 };

typedef struct step {
  tt_call *call;   /* NULL: makes an unwritten storage of `type`, or frees one */
  int *tensors;    /* [call->spec.tensor_count] slots */
  uint32_t *words; /* [call->word_count] */
  int *results;    /* [call->result_count] slots, or -1 */
  const tt_type *type;
  int slot;
} step;

struct tt_template {
  tt_arena arena;
  step *steps;
  size_t count, capacity;
  int arg_count, slot_count;
  uint64_t epoch; /* of its calls */
};

/* What one thread writes down. */
typedef struct notes {
  tt_template *t;
  const tt_storage **known; /* [slot] NULL: freed */
  size_t capacity;
  bool spoilt;
  tt_status error;
} notes;

static _Thread_local notes *current;

/* -- Taking notes -- */

static int slot_of(const notes *n, const tt_storage *storage) {
  for (int i = n->t->slot_count - 1; i >= 0; i--)
    if (n->known[i] == storage) return i;
  return -1;
}

static int add_slot(notes *n, const tt_storage *storage) {
  size_t count = (size_t)n->t->slot_count + 1;
  if (!n->error) n->error = tt_grow((void **)&n->known, &n->capacity, count, sizeof *n->known);
  if (n->error) return -1;
  n->known[count - 1] = storage;
  return n->t->slot_count++;
}

static step *add_step(notes *n) {
  tt_template *t = n->t;
  if (n->error || n->spoilt) return NULL;
  if (t->count >= MAX_STEPS) {
    n->spoilt = true;
    return NULL;
  }
  n->error = tt_grow((void **)&t->steps, &t->capacity, t->count + 1, sizeof *t->steps);
  if (n->error) return NULL;
  t->steps[t->count] = (step){.slot = -1};
  return &t->steps[t->count++];
}

void tt_template_spoil(void) {
  if (current) current->spoilt = true;
}

void tt_template_note_new(const tt_storage *storage) {
  step *made = current ? add_step(current) : NULL;
  if (!made) return;
  made->type = storage->type;
  made->slot = add_slot(current, storage);
}

void tt_template_note_type(const tt_storage *storage) {
  int slot = current ? slot_of(current, storage) : -1;
  if (slot < 0) return;
  current->spoilt |= slot < current->t->arg_count;
  step *changed = add_step(current);
  if (!changed) return;
  changed->type = storage->type;
  changed->slot = slot;
}

void tt_template_note_free(const tt_storage *storage) {
  int slot = current ? slot_of(current, storage) : -1;
  if (slot < 0) return;
  current->known[slot] = NULL;
  current->spoilt |= slot < current->t->arg_count; /* it was not to be freed */
  step *freed = add_step(current);
  if (freed) freed->slot = slot;
}

void tt_template_note_call(tt_call *call, tt_storage *const *tensors, const uint32_t *words,
                           tt_storage *const *results) {
  notes *n = current;
  if (!n || n->spoilt || n->error) return;
  if (call->row->cls == TT_RANDOM) {
    n->spoilt = true;
    return;
  }
  tt_arena *arena = &n->t->arena;
  size_t tensor_count = (size_t)call->spec.tensor_count, word_count = (size_t)call->word_count;
  int *slots = tt_arena_alloc(arena, sizeof *slots * (tensor_count + 1));
  int *made = tt_arena_alloc(arena, sizeof *made * ((size_t)call->result_count + 1));
  uint32_t *kept = tt_arena_alloc(arena, sizeof *kept * (word_count + 1));
  step *added = slots && made && kept ? add_step(n) : NULL;
  if (!slots || !made || !kept) n->error = tt_out_of_memory();
  if (!added) return;
  for (size_t i = 0; i < tensor_count; i++) {
    slots[i] = slot_of(n, tensors[i]);
    n->spoilt |= slots[i] < 0; /* a storage from elsewhere: the key does not know it */
  }
  for (int k = 0; k < call->result_count; k++) made[k] = results[k] ? add_slot(n, results[k]) : -1;
  if (word_count) memcpy(kept, words, sizeof *kept * word_count);
  *added = (step){.call = call, .tensors = slots, .words = kept, .results = made, .slot = -1};
}

tt_status tt_template_begin(tt_storage *const *args, int count) {
  if (current) return tt_error(TT_FAILED_PRECONDITION, "this thread takes notes already");
  notes *n = tt_calloc(1, sizeof *n);
  if (n) n->t = tt_calloc(1, sizeof *n->t);
  if (!n || !n->t) {
    tt_free(n);
    return tt_out_of_memory();
  }
  for (int i = 0; i < count; i++) add_slot(n, args[i]);
  n->t->arg_count = count;
  tt_hold_enter(); /* until the notes end */
  n->t->epoch = tt_call_epoch();
  current = n;
  return TT_SUCCESS;
}

tt_status tt_template_end(tt_storage *const *results, int count, int *slots, tt_template **out) {
  notes *n = current;
  current = NULL;
  *out = NULL;
  if (!n) return tt_error(TT_FAILED_PRECONDITION, "this thread takes no notes");
  for (int i = 0; i < count; i++) {
    slots[i] = slot_of(n, results[i]);
    n->spoilt |= slots[i] < 0;
  }
  tt_status status = n->error;
  if (status || n->spoilt) tt_template_destroy(n->t);
  else *out = n->t;
  tt_free(n->known);
  tt_free(n);
  tt_hold_leave();
  return status;
}

void tt_template_destroy(tt_template *t) {
  if (!t) return;
  tt_arena_deinit(&t->arena);
  tt_free(t->steps);
  tt_free(t);
}

/* -- Using them -- */

bool tt_template_usable(const tt_template *t) { return t->epoch == tt_call_epoch(); }

int tt_template_slots(const tt_template *t) { return t->slot_count; }

static tt_status run_call(const step *s, tt_stream *stream, tt_storage **storages, uint32_t site) {
  enum { LOCAL = 32 };
  tt_storage *local[LOCAL];
  int tensors = s->call->spec.tensor_count, results = s->call->result_count;
  tt_storage **operands = tensors + results <= LOCAL
                              ? local
                              : tt_malloc(sizeof *operands * (size_t)(tensors + results));
  if (!operands) return tt_out_of_memory();
  for (int i = 0; i < tensors; i++) operands[i] = storages[s->tensors[i]];
  tt_status status =
      tt_stream_record(stream, s->call, operands, s->words, site, operands + tensors);
  for (int k = 0; !status && k < results; k++)
    if (s->results[k] >= 0) storages[s->results[k]] = operands[tensors + k];
  if (operands != local) tt_free(operands);
  return status;
}

tt_status tt_template_run(const tt_template *t, tt_stream *stream, tt_storage **storages,
                          uint32_t site) {
  for (size_t i = 0; i < t->count; i++) {
    const step *s = &t->steps[i];
    if (s->call) {
      TT_TRY(run_call(s, stream, storages, site));
    } else if (s->type) {
      tt_storage_destroy(storages[s->slot]);
      TT_TRY(tt_storage_create(stream, s->type, &storages[s->slot]));
      tt_template_note_new(storages[s->slot]);
    } else {
      tt_storage_destroy(storages[s->slot]);
      storages[s->slot] = NULL;
    }
  }
  return TT_SUCCESS;
}
