#include "stream/noted.h"

tt_template *tt_template_retain(tt_template *t) {
  __atomic_fetch_add(&t->refs, 1, __ATOMIC_RELAXED);
  return t;
}

void tt_template_release(tt_template *t) {
  if (!t || __atomic_fetch_sub(&t->refs, 1, __ATOMIC_ACQ_REL) > 1) return;
  tt_arena_deinit(&t->arena);
  tt_free(t->scalars);
  tt_free(t);
}

tt_status tt_template_return(tt_template *t, const tt_returned *returned, int count) {
  size_t size = sizeof *returned * (size_t)count;
  t->returned = size ? tt_arena_copy(&t->arena, returned, size) : NULL;
  t->returned_count = count;
  return size && !t->returned ? tt_out_of_memory() : TT_SUCCESS;
}

int tt_template_slots(const tt_template *t) { return t->held_count; }
int64_t tt_template_blocks(const tt_template *t) { return t->blocks; }
