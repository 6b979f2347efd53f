#include "call/bounds.h"

#include <string.h>

static bool is_moved(uint32_t moved, int place) { return moved >> place & 1; }

static bool offset_moves(const tt_member *m, uint32_t moved, int tensor) {
  for (int i = 0; i < m->count; i++)
    if (m->places[i].kind == TT_PLACE_OFFSET && m->places[i].tensor == tensor)
      return is_moved(moved, i);
  return false;
}

/* The place that is the tensor's size, among those that move; -1: there is none, -2: several. */
static int size_of(const tt_member *m, uint32_t moved, int tensor) {
  int found = -1;
  for (int i = 0; i < m->count; i++) {
    const tt_place *p = &m->places[i];
    if (p->kind != TT_PLACE_SIZE || p->tensor != tensor || !is_moved(moved, i)) continue;
    if (found >= 0) return -2;
    found = i;
  }
  return found;
}

static int64_t room(const tt_member *m, const tt_key *key, uint32_t moved, int place) {
  const tt_place *p = &m->places[place];
  int64_t total = 0;
  tt_view view = tt_place_view(key, p, &total);
  if (tt_view_numel(&view) == 0 || tt_view_motion(&view, total) == TT_MOTION_NONE) return 0;
  return tt_view_room(&view, total, p->dim, offset_moves(m, moved, p->tensor));
}

/* Of a size and its copies. */
static int64_t bound_of(const tt_member *m, const tt_key *key, uint32_t moved, int place) {
  int64_t size = tt_place_value(key, &m->places[place]), bound = TT_LEAST_BOUND;
  while (bound < size) bound *= 2;
  for (int i = place; i < m->count; i++) {
    if (i != place && m->places[i].same != place) continue;
    if (tt_place_value(key, &m->places[i]) != size || size_of(m, moved, m->places[i].tensor) != i)
      return 0;
    int64_t most = room(m, key, moved, i);
    if (most < bound) bound = most;
  }
  return bound < size || bound < 2 ? 0 : bound;
}

bool tt_bounds_of(const tt_member *m, const tt_key *key, uint32_t moved, tt_bounds *out) {
  memset(out, 0, sizeof *out);
  for (int i = 0; i < m->count; i++) {
    const tt_place *p = &m->places[i];
    if (p->kind != TT_PLACE_SIZE || !is_moved(moved, i)) continue;
    out->sizes[i] = p->same >= 0 ? out->sizes[p->same] : bound_of(m, key, moved, i);
    if (out->sizes[i] == 0) return false;
    out->hash = tt_hash_bytes(&out->sizes[i], sizeof *out->sizes, out->hash);
  }
  return true;
}

tt_motion tt_bounds_view(const tt_member *m, const tt_key *key, uint32_t moved,
                         const tt_bounds *bounds, int place, tt_view *view) {
  int64_t total = 0;
  int tensor = m->places[place].tensor, size = size_of(m, moved, tensor);
  *view = tt_place_view(key, &m->places[place], &total);
  if (size < 0 || tt_view_motion(view, total) == TT_MOTION_NONE) return tt_view_motion(view, total);
  return tt_view_widen(view, total, m->places[size].dim, bounds->sizes[size],
                       offset_moves(m, moved, tensor));
}
