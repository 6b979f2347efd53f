#include "call/family.h"

#include <string.h>

enum { MOST_FAMILIES = 65536, MOST_MADE = 256 };

typedef struct made {
  struct made *next;
  uint32_t moved, flat;
  uint64_t written, distances, bounds;
  tt_call *call; /* several may have the same */
} made;

/* An argument's place: negative ones count from `size`, and the greatest is `last`. */
typedef struct span {
  int64_t size, last;
} span;

typedef struct tt_family {
  bool fixed;
  uint32_t moved; /* places in which members differed */
  made *generals;
  int made_count;
  int64_t first[TT_MOST_PLACES]; /* the first member's */
  span spans[];                  /* of its places */
} family;

/* -- What an argument's place may be -- */

/* Of dimension `dim` of an argument; -1 if it has none. */
static int64_t size_along(const tt_call_spec *spec, int arg, int64_t dim) {
  const tt_arg *of = &spec->args[arg];
  const tt_view *view = of->kind == TT_ARG_TENSOR ? &spec->tensors[of->first].view : NULL;
  if (!view && of->kind != TT_ARG_INTS) return -1;
  int rank = view ? view->rank : of->count;
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= rank) return -1;
  return view ? view->sizes[dim] : of->ints[dim];
}

/* Of a start: as far as its end, at its distance, stays inside; if the part is as long as that. An
 * end that a length tells is inside wherever the caller says that the start is. */
static int64_t last_start(const tt_call_spec *spec, int at, int part, int64_t size) {
  const tt_arg *args = spec->args;
  bool stepped = at + 2 < spec->arg_count && args[at + 2].kind == TT_ARG_INT;
  int64_t step = stepped ? args[at + 2].i : 1, length = 0;
  if (at + 1 < spec->arg_count && args[at + 1].i == TT_AS_MANY) return size;
  if (at + 1 >= spec->arg_count || args[at + 1].kind != TT_ARG_INT || step < 1 ||
      __builtin_sub_overflow(args[at + 1].i, args[at].i, &length) || length < 1 || length > size)
    return -1;
  bool fits = size_along(spec, part, args[at - 1].i) == (length - 1) / step + 1;
  return fits ? size - length : -1;
}

static span span_of(const tt_call_spec *spec, int at) {
  const tt_op_place *place = tt_op_place_of(spec->row->name);
  span none = {0, -1};
  if (!place || at < 1 || spec->args[at - 1].kind != TT_ARG_INT) return none;
  int64_t size = size_along(spec, place->whole, spec->args[at - 1].i);
  if (size < 0) return none;
  return (span){size, place->end ? last_start(spec, at, place->whole ? 0 : 1, size) : size - 1};
}

/* The argument of the k-th place that is one; -1: there is none. */
static int arg_of(const tt_call_spec *spec, int k) {
  for (int i = 0; i < spec->arg_count; i++)
    if (spec->args[i].place && k-- == 0) return i;
  return -1;
}

/* -- Which call a member has -- */

static bool place_of_arg(const span *within, const tt_key *key, const tt_place *place,
                         int64_t *value) {
  tt_place end = {.at = place->end};
  int64_t last = within->last;
  if (place->end && last >= 0) last = within->size - (tt_place_value(key, &end) - *value);
  if (place->end && *value < 0 && tt_place_value(key, &end) >= 0) return false;
  if (*value < 0) *value += within->size;
  return *value >= 0 && *value <= last;
}

/* False where the member has to be as it is. */
static bool resolve(const family *f, const tt_key *key, const tt_member *m, tt_general *out) {
  out->moved = f->moved;
  out->flat = 0;
  out->written = m->written;
  out->distances = m->distances;
  out->places.count = 0;
  for (int i = 0; i < m->count; i++)
    if (tt_place_value(key, &m->places[i]) != f->first[i]) out->moved |= 1u << i;
  if (f->fixed || !out->moved || !tt_bounds_of(m, key, out->moved, &out->bounds)) return false;
  for (int i = 0; i < m->count; i++) {
    const tt_place *place = &m->places[i];
    int64_t value = tt_place_value(key, place);
    if (!(out->moved >> i & 1) || place->same >= 0) continue;
    if (place->kind == TT_PLACE_ARG) {
      if (!place_of_arg(&f->spans[i], key, place, &value)) return false;
    } else if (place->kind == TT_PLACE_OFFSET) {
      tt_view view;
      tt_motion motion = tt_bounds_view(m, key, out->moved, &out->bounds, i, &view);
      if (motion == TT_MOTION_NONE) return false;
      if (motion == TT_MOTION_FLAT) out->flat |= 1u << i;
    }
    out->places.values[out->places.count++] = value;
  }
  return true;
}

static made *find_made(const family *f, const tt_general *wanted) {
  made *one = f->generals;
  while (one && (one->moved != wanted->moved || one->flat != wanted->flat ||
                 one->written != wanted->written || one->distances != wanted->distances ||
                 one->bounds != wanted->bounds.hash))
    one = one->next;
  return one;
}

tt_call *tt_families_find(const tt_families *all, const tt_op_row *row, const tt_key *key,
                          size_t first, tt_places *places) {
  tt_member m;
  tt_general wanted;
  const made *found = NULL;
  if (tt_member_init(&m, row, key, first)) {
    const family *f = tt_intern_find(&all->by_key, m.family.data, m.family.size);
    if (f && resolve(f, key, &m, &wanted)) found = find_made(f, &wanted);
    if (found) *places = wanted.places;
  }
  tt_member_deinit(&m);
  return found ? found->call : NULL;
}

/* -- Making one -- */

/* The scalars of the places stand behind the numbers, before a random call's last two. */
static tt_status add_scalars(tt_general *g, const tt_call_spec *from) {
  int drawn = from->row->cls == TT_RANDOM ? 2 : 0, own = from->scalar_count - drawn;
  int count = from->scalar_count + g->places.count;
  tt_dtype *scalars = tt_arena_alloc(&g->arena, sizeof *scalars * (size_t)count);
  if (!scalars) return tt_out_of_memory();
  for (int i = 0; i < own; i++) scalars[i] = from->scalars[i];
  for (int i = own; i < count; i++) scalars[i] = TT_I64;
  g->spec.scalars = scalars;
  g->spec.scalar_count = count;
  return TT_SUCCESS;
}

/* The view is as wide as the bound. The motion that it has is its offset's. */
static void make_length(tt_general *g, const tt_member *m, const tt_key *key, int place, int scalar,
                        tt_call_tensor *tensors, tt_call_length *out) {
  const tt_place *p = &m->places[place];
  tt_motion motion = tt_bounds_view(m, key, g->moved, &g->bounds, place, &tensors[p->tensor].view);
  *out = (tt_call_length){.tensor = p->tensor,
                          .dim = p->dim,
                          .scalar = scalar,
                          .outer = 1,
                          .inner = 1,
                          .motion = motion};
}

/* Offsets, starts and sizes become the scalars from `next` on. */
static void make_places(tt_general *g, const tt_member *m, const tt_key *key,
                        const tt_call_spec *from, tt_call_tensor *tensors, tt_arg *args,
                        tt_call_length *lengths) {
  int next = from->scalar_count - (from->row->cls == TT_RANDOM ? 2 : 0);
  int scalars[TT_MOST_PLACES];
  for (int i = 0; i < m->count; i++) {
    const tt_place *p = &m->places[i];
    if (!(g->moved >> i & 1)) continue;
    scalars[i] = p->same >= 0 ? scalars[p->same] : next++;
    if (p->kind == TT_PLACE_OFFSET) {
      tensors[p->tensor].moves = true;
      tensors[p->tensor].offset_scalar = scalars[i];
    } else if (p->kind == TT_PLACE_SIZE) {
      make_length(g, m, key, i, scalars[i], tensors, &lengths[g->spec.length_count++]);
    } else {
      args[arg_of(from, i)] =
          (tt_arg){.kind = TT_ARG_SCALAR, .first = scalars[i], .dtype = TT_I64, .place = true};
    }
  }
}

static tt_status make_spec(tt_general *g, const tt_member *m, const tt_key *key,
                           const tt_call_spec *from) {
  size_t tensor_bytes = sizeof(tt_call_tensor) * (size_t)from->tensor_count;
  size_t arg_bytes = sizeof(tt_arg) * (size_t)from->arg_count;
  tt_call_tensor *tensors = tt_arena_alloc(&g->arena, tensor_bytes + 1);
  tt_arg *args = tt_arena_alloc(&g->arena, arg_bytes + 1);
  size_t length_bytes = sizeof(tt_call_length) * (size_t)(from->length_count + TT_MOST_PLACES);
  tt_call_length *lengths = tt_arena_alloc(&g->arena, length_bytes);
  if (!tensors || !args || !lengths) return tt_out_of_memory();
  for (int i = 0; i < from->length_count; i++) lengths[i] = from->lengths[i];
  if (tensor_bytes) memcpy(tensors, from->tensors, tensor_bytes);
  if (arg_bytes) memcpy(args, from->args, arg_bytes);
  g->spec = *from;
  g->spec.tensors = tensors;
  g->spec.args = args;
  g->spec.lengths = lengths;
  TT_TRY(add_scalars(g, from));
  make_places(g, m, key, from, tensors, args, lengths);
  return TT_SUCCESS;
}

static void make_key(tt_general *g, const tt_member *m, const tt_key *key) {
  tt_key_init(&g->key);
  tt_key_add(&g->key, key->data, key->size);
  for (int i = 0; i < m->count && !g->key.failed; i++) {
    tt_motion motion = g->flat >> i & 1 ? TT_MOTION_FLAT : TT_MOTION_DIGITS;
    int64_t bound = g->bounds.sizes[i];
    if (g->moved >> i & 1) tt_place_mark(&g->key, &m->places[i], bound ? bound : motion);
  }
}

static bool want(const tt_families *all, const tt_key *key, const tt_member *m,
                 const tt_call_spec *spec, tt_general *out) {
  out->family = tt_intern_find(&all->by_key, m->family.data, m->family.size);
  if (!out->family || !resolve(out->family, key, m, out)) return false;
  make_key(out, m, key);
  out->arena = (tt_arena)TT_ARENA_INIT;
  tt_status status = make_spec(out, m, key, spec);
  if (!status && !out->key.failed) return true;
  tt_status_release(status);
  tt_general_deinit(out);
  return false;
}

bool tt_families_want(const tt_families *all, const tt_key *key, size_t first,
                      const tt_call_spec *spec, tt_general *out) {
  tt_member m;
  bool wanted = tt_member_init(&m, spec->row, key, first) && want(all, key, &m, spec, out);
  tt_member_deinit(&m);
  return wanted;
}

void tt_general_deinit(tt_general *g) {
  tt_key_deinit(&g->key);
  tt_arena_deinit(&g->arena);
}

void tt_families_keep(const tt_general *g, tt_call *call) {
  family *f = g->family;
  f->fixed |= !call;
  if (!call) return;
  for (int i = 0; i < TT_MOST_PLACES; i++) /* the first one's size stays as it is */
    if (g->bounds.sizes[i] == 0) f->moved |= g->moved & 1u << i;
  if (f->made_count == MOST_MADE || find_made(f, g)) return;
  made *one = tt_malloc(sizeof *one);
  if (!one) return; /* it is made again, and found to be there */
  *one = (made){f->generals, g->moved, g->flat, g->written, g->distances, g->bounds.hash, call};
  f->made_count++;
  f->generals = one;
}

static void add(tt_families *all, const tt_key *key, const tt_member *m, const tt_call_spec *spec) {
  const tt_key *by = &m->family;
  if (all->by_key.count >= MOST_FAMILIES || tt_intern_find(&all->by_key, by->data, by->size))
    return;
  family *f = tt_calloc(1, sizeof *f + sizeof *f->spans * (size_t)m->count);
  if (!f) return;
  for (int i = 0; i < m->count; i++) {
    f->first[i] = tt_place_value(key, &m->places[i]);
    int arg = m->places[i].kind == TT_PLACE_ARG ? arg_of(spec, i) : -1;
    if (arg >= 0) f->spans[i] = span_of(spec, arg);
    else f->spans[i].last = -1;
  }
  tt_status status = tt_intern_add(&all->by_key, by->data, by->size, f);
  if (status) tt_free(f);
  tt_status_release(status);
}

void tt_families_add(tt_families *all, const tt_key *key, size_t first, const tt_call_spec *spec) {
  tt_member m;
  if (tt_member_init(&m, spec->row, key, first)) add(all, key, &m, spec);
  tt_member_deinit(&m);
}

void tt_families_clear(tt_families *all) {
  for (size_t i = 0; i < all->by_key.capacity; i++) {
    family *f = all->by_key.entries[i].key ? all->by_key.entries[i].value : NULL;
    for (made *next, *one = f ? f->generals : NULL; one; one = next) {
      next = one->next;
      tt_free(one);
    }
    tt_free(f);
  }
  tt_intern_deinit(&all->by_key);
}
