#include "call/args.h"

#include <string.h>

static uint64_t word(tt_args_reader *r) {
  uint64_t word = 0;
  memcpy(&word, r->at, sizeof word);
  r->at += sizeof word;
  return word;
}

static double number(tt_args_reader *r) {
  double value = 0;
  memcpy(&value, r->at, sizeof value);
  r->at += sizeof value;
  return value;
}

static tt_tag tag(tt_args_reader *r, uint64_t *of) {
  uint64_t both = word(r);
  *of = both >> 8;
  return (tt_tag)(both & 0xff);
}

static void *room(tt_args_reader *r, int count, size_t size) {
  return tt_arena_alloc(r->arena, ((size_t)count + 1) * size);
}

static void read_tensor(tt_args_reader *r, tt_arg *out) {
  r->at = tt_key_after_tensor(r->at);
  out->kind = TT_ARG_TENSOR;
  out->first = r->next_tensor++;
}

static tt_status read_number(tt_args_reader *r, tt_arg *out) {
  uint64_t of = 0;
  tt_tag is = tag(r, &of);
  out->dtype = (tt_dtype)of;
  if (is == TT_TAG_NUMBER) {
    out->kind = TT_ARG_SCALAR;
    out->first = r->next_number++;
  } else if (is == TT_TAG_COMPLEX) {
    double *parts = room(r, 2, sizeof *parts);
    if (!parts) return tt_out_of_memory();
    parts[0] = number(r);
    parts[1] = number(r);
    out->kind = TT_ARG_COMPLEX;
    out->floats = parts;
  } else if (tt_is_float(out->dtype)) {
    out->kind = TT_ARG_FLOAT;
    out->f = number(r);
  } else {
    out->kind = TT_ARG_INT;
    out->i = (int64_t)word(r);
    out->f = (double)out->i;
  }
  return TT_SUCCESS;
}

static tt_status read_tensors(tt_args_reader *r, tt_arg *out) {
  bool *present = room(r, out->count, sizeof *present);
  if (!present) return tt_out_of_memory();
  out->kind = TT_ARG_TENSORS;
  out->first = r->next_tensor;
  out->present = present;
  for (int i = 0; i < out->count; i++) {
    tt_arg element = {.kind = TT_ARG_NONE};
    TT_TRY(tt_args_read(r, &element));
    present[i] = element.kind == TT_ARG_TENSOR;
    r->beyond |= !present[i] && element.kind != TT_ARG_NONE;
  }
  return TT_SUCCESS;
}

static tt_status read_numbers(tt_args_reader *r, tt_tag is, tt_arg *out) {
  double *values = room(r, out->count, sizeof *values);
  if (!values) return tt_out_of_memory();
  out->equal = is == TT_TAG_EQUAL;
  out->first = r->next_number;
  out->dtype = TT_F64;
  for (int i = 0; i < (out->equal ? 1 : out->count); i++) {
    tt_arg element = {.kind = TT_ARG_NONE};
    TT_TRY(read_number(r, &element));
    r->beyond |= tt_is_complex(element.dtype) || element.dtype == TT_BOOL;
    values[i] = element.f;
  }
  out->kind = is == TT_TAG_STATICS ? TT_ARG_FLOATS : TT_ARG_SCALARS;
  if (is == TT_TAG_STATICS) out->floats = values;
  return TT_SUCCESS;
}

static tt_status read_ints(tt_args_reader *r, tt_arg *out) {
  int64_t *values = room(r, out->count, sizeof *values);
  if (!values) return tt_out_of_memory();
  for (int i = 0; i < out->count; i++) values[i] = (int64_t)word(r);
  out->kind = TT_ARG_INTS;
  out->ints = values;
  return TT_SUCCESS;
}

static tt_status read_text(tt_args_reader *r, size_t size, tt_arg *out) {
  char *text = tt_arena_alloc(r->arena, size + 1);
  if (!text) return tt_out_of_memory();
  memcpy(text, r->at, size);
  r->at += size;
  out->kind = TT_ARG_STRING;
  out->text = text;
  return TT_SUCCESS;
}

/* Numbers begin with a tag of their own. */
static tt_status read_alone(tt_args_reader *r, tt_arg *out) {
  r->at -= sizeof(uint64_t);
  return read_number(r, out);
}

tt_status tt_args_read(tt_args_reader *r, tt_arg *out) {
  uint64_t of = 0;
  tt_tag is = tag(r, &of);
  *out = (tt_arg){.kind = TT_ARG_NONE};
  switch (is) {
  case TT_TAG_NONE:
    return TT_SUCCESS;
  case TT_TAG_TENSOR:
    return (read_tensor(r, out), TT_SUCCESS);
  case TT_TAG_HOST:
    return read_number(r, out);
  case TT_TAG_INT:
  case TT_TAG_PLACE:
  case TT_TAG_END:
    *out = (tt_arg){.kind = TT_ARG_INT, .dtype = (tt_dtype)of, .place = is == TT_TAG_PLACE};
    out->i = (int64_t)word(r);
    return TT_SUCCESS;
  case TT_TAG_DTYPE:
    *out = (tt_arg){.kind = TT_ARG_INT, .dtype = (tt_dtype)(of & 0xff)};
    return TT_SUCCESS;
  case TT_TAG_TEXT:
    return read_text(r, (size_t)of, out);
  case TT_TAG_NUMBER:
  case TT_TAG_STATIC:
  case TT_TAG_COMPLEX:
    return read_alone(r, out);
  default:
    out->count = (int)of;
  }
  if (is == TT_TAG_TENSORS) return read_tensors(r, out);
  return is == TT_TAG_INTS ? read_ints(r, out) : read_numbers(r, is, out);
}

/* -- Without records -- */

tt_tag tt_tag_of_int(const tt_op_row *row, const char *name) {
  const tt_op_place *place = row ? tt_op_place_of(row->name) : NULL;
  if (place && strcmp(name, place->start) == 0) return TT_TAG_PLACE;
  return place && place->end && strcmp(name, place->end) == 0 ? TT_TAG_END : TT_TAG_INT;
}

static size_t size_of(const uint8_t *at, tt_tag tag, uint64_t of) {
  switch (tag) {
  case TT_TAG_TENSOR:
    return (size_t)(tt_key_after_tensor(at) - at);
  case TT_TAG_STATIC:
  case TT_TAG_INT:
  case TT_TAG_PLACE:
  case TT_TAG_END:
    return sizeof(uint64_t);
  case TT_TAG_COMPLEX:
    return 2 * sizeof(uint64_t);
  case TT_TAG_INTS:
    return (size_t)of * sizeof(uint64_t);
  case TT_TAG_TEXT:
    return (size_t)of;
  default:
    return 0;
  }
}

bool tt_args_next(const tt_key *key, size_t *at, tt_args_item *out) {
  uint64_t word = 0;
  if (*at >= key->size) return false;
  memcpy(&word, key->data + *at, sizeof word);
  *out = (tt_args_item){(tt_tag)(word & 0xff), word >> 8, *at + sizeof word};
  *at = out->at + size_of(key->data + out->at, out->tag, out->of);
  return true;
}
