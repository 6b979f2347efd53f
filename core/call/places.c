#include "call/places.h"

#include <string.h>

enum { MOST_TENSORS = 64, WORD = sizeof(uint64_t) };

/* A tensor of the key. */
typedef struct operand {
  size_t at; /* of what tt_key_tensor wrote */
  uint64_t bits;
  int root; /* the first tensor with the same storage */
  bool written;
} operand;

static uint64_t get(const tt_key *key, size_t at) {
  uint64_t word = 0;
  memcpy(&word, key->data + at, WORD);
  return word;
}

static void set(tt_key *key, size_t at, uint64_t word) { memcpy(key->data + at, &word, WORD); }

/* In a view's offset or an argument's place of a family's key, and in an offset that moves. */
#define BLANK ((uint64_t)1 << 63)

static bool is_canonical(const operand *o) { return o->bits >> 1 & 1; }
static size_t offset_of(const operand *o) { return o->at + 2 * WORD; }

static int64_t bytes_before(const tt_key *key, const operand *o) {
  if (is_canonical(o)) return 0;
  return (int64_t)get(key, offset_of(o)) * tt_dtype_bytes((tt_dtype)(o->bits >> 8 & 0xff));
}

static operand read_operand(const tt_key *key, const tt_args_item *item, int number) {
  operand o = {.at = item->at, .bits = get(key, item->at + WORD), .written = item->of & 1};
  int same_as = (int)(o.bits >> 32) - 1;
  o.root = same_as < 0 ? number : same_as;
  return o;
}

/* Finds arguments and tensors; false where there are too many. */
static bool scan(tt_member *m, const tt_key *key, size_t first, operand *all, int *tensors) {
  tt_args_item item = {.tag = TT_TAG_NONE};
  for (size_t at = first; tt_args_next(key, &at, &item);) {
    if (item.tag == TT_TAG_TENSOR) {
      if (*tensors == MOST_TENSORS) return false;
      all[*tensors] = read_operand(key, &item, *tensors);
      m->written |= (all[*tensors].bits & 1) << *tensors;
      ++*tensors;
    } else if (item.tag == TT_TAG_PLACE) {
      if (m->count == TT_MOST_PLACES) return false;
      m->places[m->count++] = (tt_place){.at = item.at, .tensor = -1};
    } else if (item.tag == TT_TAG_END && m->count) {
      m->places[m->count - 1].end = item.at;
    }
  }
  return true;
}

/* Places, and how far apart the views of a storage are that is written. */
static bool add_offsets(tt_member *m, const tt_key *key, const operand *all, int count) {
  bool written[MOST_TENSORS] = {false};
  for (int i = 0; i < count; i++) written[all[i].root] |= all[i].written;
  for (int i = 0; i < count; i++) {
    const operand *root = &all[all[i].root];
    int64_t apart[2] = {i, bytes_before(key, &all[i]) - bytes_before(key, root)};
    if (written[all[i].root] && root != &all[i])
      m->distances = tt_hash_bytes(apart, sizeof apart, m->distances);
    if (is_canonical(&all[i])) continue;
    if (m->count == TT_MOST_PLACES) return false;
    m->places[m->count++] = (tt_place){.at = offset_of(&all[i]), .tensor = i};
  }
  return true;
}

/* The key without its places, and without what was written. */
static void blank(tt_member *m, const tt_key *key, const operand *all, int tensors) {
  tt_key *family = &m->family;
  tt_key_add(family, key->data, key->size);
  if (family->failed) return;
  for (int i = 0; i < tensors; i++) set(family, all[i].at + WORD, all[i].bits & ~(uint64_t)1);
  for (int i = 0; i < m->count; i++) {
    const tt_place *p = &m->places[i];
    set(family, p->at, BLANK);
    if (p->end) set(family, p->end, get(key, p->end) - get(key, p->at));
  }
}

bool tt_member_init(tt_member *m, const tt_key *key, size_t first) {
  operand all[MOST_TENSORS];
  int tensors = 0;
  m->count = 0;
  m->written = m->distances = 0;
  tt_key_init(&m->family);
  if (key->failed || !scan(m, key, first, all, &tensors) || !add_offsets(m, key, all, tensors) ||
      !m->count)
    return false;
  blank(m, key, all, tensors);
  return !m->family.failed;
}

void tt_member_deinit(tt_member *m) { tt_key_deinit(&m->family); }

int64_t tt_place_value(const tt_key *key, const tt_place *place) {
  return (int64_t)get(key, place->at);
}

tt_motion tt_place_motion(const tt_key *key, const tt_place *place) {
  uint64_t bits = get(key, place->at - WORD);
  const tt_type *storage = (const tt_type *)(uintptr_t)get(key, place->at - 2 * WORD);
  tt_view view = {.dtype = (tt_dtype)(bits >> 8 & 0xff), .rank = (int)(bits >> 16 & 0xff)};
  size_t size = (size_t)view.rank * WORD;
  const uint8_t *at = key->data + place->at;
  memcpy(&view.offset, at, WORD);
  memcpy(view.sizes, at + WORD, size);
  memcpy(view.strides, at + WORD + size, size);
  return tt_view_motion(&view, tt_view_total(&view, storage));
}

void tt_place_mark(tt_key *copy, const tt_place *place, tt_motion motion) {
  if (place->tensor >= 0) {
    set(copy, place->at, BLANK | (uint64_t)motion);
    return;
  }
  if (place->end) set(copy, place->end, get(copy, place->end) - get(copy, place->at));
  set(copy, place->at - WORD, (uint64_t)TT_TAG_NUMBER | (uint64_t)TT_I64 << 8);
  set(copy, place->at, 0);
}
