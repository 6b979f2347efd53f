#include "stream/noted.h"

void tt_template_destroy(tt_template *t) {
  if (!t) return;
  tt_arena_deinit(&t->arena);
  tt_free(t->scalars);
  tt_free(t);
}

bool tt_template_usable(const tt_template *t, tt_call_table *calls) {
  return t->epoch == tt_call_table_epoch(calls);
}

int tt_template_slots(const tt_template *t) { return t->held_count; }
int64_t tt_template_blocks(const tt_template *t) { return t->blocks; }
