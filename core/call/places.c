#include "call/places.h"

#include <string.h>

enum { MOST_TENSORS = 64, WORD = sizeof(uint64_t) };

/* A tensor of the key. */
typedef struct operand {
  size_t at; /* of what tt_key_tensor wrote */
  uint64_t bits;
  int root; /* the first tensor with the same storage */
  int arg;  /* counted among arguments; lists are one only at the end */
  bool written;
} operand;

/* What a key has, before its places are known. */
typedef struct scanned {
  operand all[MOST_TENSORS];
  int count;
  bool shared[MOST_TENSORS]; /* the storage of a root is written */
  int reduced;               /* which argument lists dims, or -1 */
  bool empty_is_none;        /* of a list of no dims */
  tt_args_item dims;
  size_t end; /* of a start */
} scanned;

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

static operand read_operand(const tt_key *key, const tt_args_item *item, int number, int arg) {
  operand o = {.at = item->at, .arg = arg, .written = item->of & 1};
  o.bits = get(key, item->at + WORD);
  int same_as = (int)(o.bits >> 32) - 1;
  o.root = same_as < 0 ? number : same_as;
  return o;
}

/* Finds arguments and tensors; false where there are too many. */
static bool scan(tt_member *m, const tt_key *key, size_t first, scanned *s) {
  tt_args_item item = {.tag = TT_TAG_NONE};
  int arg = 0;
  for (size_t at = first; tt_args_next(key, &at, &item); arg += item.tag != TT_TAG_HOST) {
    if (arg == s->reduced) s->dims = item;
    if (item.tag == TT_TAG_TENSOR) {
      if (s->count == MOST_TENSORS) return false;
      s->all[s->count] = read_operand(key, &item, s->count, arg);
      m->written |= (s->all[s->count].bits & 1) << s->count;
      s->count++;
    } else if (item.tag == TT_TAG_PLACE) {
      if (m->count == TT_MOST_PLACES) return false;
      m->places[m->count++] = (tt_place){.kind = TT_PLACE_ARG, .at = item.at, .same = -1};
    } else if (item.tag == TT_TAG_END && m->count && (int64_t)get(key, item.at) != TT_AS_MANY) {
      m->places[m->count - 1].end = s->end = item.at;
    }
  }
  for (int i = 0; i < s->count; i++) s->shared[s->all[i].root] |= s->all[i].written;
  return true;
}

/* Places, and how far apart the views of a storage are that is written. */
static bool add_offsets(tt_member *m, const tt_key *key, const scanned *s) {
  for (int i = 0; i < s->count; i++) {
    const operand *one = &s->all[i], *root = &s->all[one->root];
    int64_t apart[2] = {i, bytes_before(key, one) - bytes_before(key, root)};
    if (s->shared[one->root] && root != one)
      m->distances = tt_hash_bytes(apart, sizeof apart, m->distances);
    if (is_canonical(one)) continue;
    if (m->count == TT_MOST_PLACES) return false;
    size_t at = offset_of(one);
    m->places[m->count++] =
        (tt_place){.kind = TT_PLACE_OFFSET, .at = at, .view = at, .tensor = i, .same = -1};
  }
  return true;
}

/* -- Sizes -- */

static int rank_of(const operand *o) { return (int)(o->bits >> 16 & 0xff); }

static const operand *operand_at(const scanned *s, int arg) {
  for (int i = 0; i < s->count; i++)
    if (s->all[i].arg == arg) return &s->all[i];
  return NULL;
}

/* Where a write may overlap what is read, sizes count. */
static bool may_grow(const tt_key *key, const scanned *s, const operand *o, int dim) {
  if (!o || is_canonical(o) || s->shared[o->root] || dim < 0 || dim >= rank_of(o)) return false;
  return (int64_t)get(key, offset_of(o) + (size_t)(1 + rank_of(o) + dim) * WORD) >= 0;
}

static void add_size(tt_member *m, const scanned *s, const operand *o, int dim, int same) {
  size_t view = offset_of(o);
  m->places[m->count++] = (tt_place){.kind = TT_PLACE_SIZE,
                                     .at = view + (size_t)(1 + dim) * WORD,
                                     .view = view,
                                     .tensor = (int)(o - s->all),
                                     .dim = dim,
                                     .end = s->end,
                                     .same = same};
}

static bool reduces(const tt_key *key, const scanned *s, int rank, int dim) {
  bool listed = s->dims.tag == TT_TAG_INTS || s->dims.tag == TT_TAG_INT;
  size_t count = s->dims.tag == TT_TAG_INTS ? (size_t)s->dims.of : 1;
  for (size_t i = 0; listed && i < count; i++) {
    int64_t one = (int64_t)get(key, s->dims.at + i * WORD);
    if (one == dim || one + rank == dim) return true;
  }
  return !listed || (count == 0 && !s->empty_is_none);
}

static void add_reduced(tt_member *m, const tt_key *key, const scanned *s) {
  const operand *o = operand_at(s, 0);
  if (s->end && get(key, s->end + 2 * WORD) != 1) return; /* with steps the end tells less */
  for (int dim = 0; o && dim < rank_of(o) && m->count < TT_MOST_PLACES; dim++)
    if (reduces(key, s, rank_of(o), dim) && may_grow(key, s, o, dim)) add_size(m, s, o, dim, -1);
}

static void add_contracted(tt_member *m, const tt_key *key, const scanned *s,
                           const tt_op_length *of) {
  const operand *o[2];
  int dims[2], first = m->count;
  for (int k = 0; k < 2; k++) {
    o[k] = operand_at(s, of->same[k].arg);
    dims[k] = o[k] ? rank_of(o[k]) + of->same[k].dim : -1;
    if (!may_grow(key, s, o[k], dims[k])) return;
  }
  if (first + 2 > TT_MOST_PLACES) return;
  for (int k = 0; k < 2; k++) add_size(m, s, o[k], dims[k], k ? first : -1);
}

/* The key without its places, and without what was written. */
static void blank(tt_member *m, const tt_key *key, const scanned *s) {
  tt_key *family = &m->family;
  tt_key_add(family, key->data, key->size);
  if (family->failed) return;
  for (int i = 0; i < s->count; i++)
    set(family, s->all[i].at + WORD, s->all[i].bits & ~(uint64_t)1);
  for (int i = 0; i < m->count; i++) {
    const tt_place *p = &m->places[i];
    set(family, p->at, BLANK);
    if (p->end) set(family, p->end, get(family, p->end) - get(key, p->at));
  }
}

bool tt_member_init(tt_member *m, const tt_op_row *row, const tt_key *key, size_t first) {
  const tt_op_length *length = tt_op_length_of(row->name);
  scanned s = {.reduced = length && length->reduced > 0 ? length->reduced : -1,
               .empty_is_none = length && length->empty_is_none};
  m->count = 0;
  m->written = m->distances = 0;
  tt_key_init(&m->family);
  if (key->failed || !scan(m, key, first, &s) || !add_offsets(m, key, &s)) return false;
  if (length && length->reduced < 0) add_contracted(m, key, &s, length);
  else if (length) add_reduced(m, key, &s);
  if (!m->count) return false;
  blank(m, key, &s);
  return !m->family.failed;
}

void tt_member_deinit(tt_member *m) { tt_key_deinit(&m->family); }

int64_t tt_place_value(const tt_key *key, const tt_place *place) {
  return (int64_t)get(key, place->at);
}

tt_view tt_place_view(const tt_key *key, const tt_place *place, int64_t *total) {
  uint64_t bits = get(key, place->view - WORD);
  const tt_type *storage = (const tt_type *)(uintptr_t)get(key, place->view - 2 * WORD);
  tt_view view = {.dtype = (tt_dtype)(bits >> 8 & 0xff), .rank = (int)(bits >> 16 & 0xff)};
  size_t size = (size_t)view.rank * WORD;
  const uint8_t *at = key->data + place->view;
  memcpy(&view.offset, at, WORD);
  memcpy(view.sizes, at + WORD, size);
  memcpy(view.strides, at + WORD + size, size);
  *total = tt_view_total(&view, storage);
  return view;
}

void tt_place_mark(tt_key *copy, const tt_place *place, int64_t as) {
  if (place->end) set(copy, place->end, get(copy, place->end) - get(copy, place->at));
  if (place->kind != TT_PLACE_ARG) {
    set(copy, place->at, BLANK | (uint64_t)as);
    return;
  }
  set(copy, place->at - WORD, (uint64_t)TT_TAG_NUMBER | (uint64_t)TT_I64 << 8);
  set(copy, place->at, 0);
}
