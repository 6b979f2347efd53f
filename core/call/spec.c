#include "call/spec.h"

#include <string.h>

static const void *copy(tt_arena *arena, const void *data, size_t count, size_t size,
                        bool *failed) {
  if (!data || count == 0) return NULL;
  size_t bytes = 0;
  void *made = tt_mul_size(count, size, &bytes) ? tt_arena_copy(arena, data, bytes) : NULL;
  if (!made) *failed = true;
  return made;
}

static void copy_arg(tt_arena *arena, tt_arg *arg, bool *failed) {
  size_t count = (size_t)arg->count;
  if (arg->kind == TT_ARG_COMPLEX) count = 2;
  arg->ints =
      copy(arena, arg->kind == TT_ARG_INTS ? arg->ints : NULL, count, sizeof *arg->ints, failed);
  bool floats = arg->kind == TT_ARG_FLOATS || arg->kind == TT_ARG_COMPLEX;
  arg->floats = copy(arena, floats ? arg->floats : NULL, count, sizeof *arg->floats, failed);
  arg->present = copy(arena, arg->kind == TT_ARG_TENSORS ? arg->present : NULL, count,
                      sizeof *arg->present, failed);
  if (arg->text) arg->text = copy(arena, arg->text, strlen(arg->text) + 1, 1, failed);
}

tt_status tt_spec_copy(tt_arena *arena, const tt_call_spec *from, tt_call_spec *to) {
  bool failed = false;
  *to = *from;
  to->name = copy(arena, from->name, strlen(from->name) + 1, 1, &failed);
  tt_arg *args = tt_arena_alloc(arena, sizeof *args * (size_t)(from->arg_count + 1));
  if (!args) return tt_out_of_memory();
  for (int i = 0; i < from->arg_count; i++) {
    args[i] = from->args[i];
    copy_arg(arena, &args[i], &failed);
  }
  to->args = args;
  to->tensors =
      copy(arena, from->tensors, (size_t)from->tensor_count, sizeof *from->tensors, &failed);
  to->scalars =
      copy(arena, from->scalars, (size_t)from->scalar_count, sizeof *from->scalars, &failed);
  to->lengths =
      copy(arena, from->lengths, (size_t)from->length_count, sizeof *from->lengths, &failed);
  to->results =
      copy(arena, from->results, (size_t)from->result_count, sizeof *from->results, &failed);
  return failed ? tt_out_of_memory() : TT_SUCCESS;
}

int tt_spec_root_of(const tt_call_spec *spec, int tensor) {
  while (spec->tensors[tensor].same_as >= 0) tensor = spec->tensors[tensor].same_as;
  return tensor;
}

int tt_spec_word_of(const tt_call_spec *spec, int scalar) {
  int word = 0;
  for (int i = 0; i < scalar; i++) word += tt_scalar_words(spec->scalars[i]);
  return word;
}
