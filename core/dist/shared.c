#include "dist/shared.h"

#include "dist/combine.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* What goes on is cut into rounds. In each, every rank gives something into its slot, and says on
 * its card what it is doing; they meet; and each takes what it needs from all slots. */
typedef struct round {
  tt_segment *segment;
  const tt_collective *c;
  int64_t until;
  int64_t unit; /* bytes of an element */
  int64_t part; /* bytes of a rank's part, of which a round does `count` from `at` on */
  int64_t at, count;
  int64_t stride; /* bytes between the parts of a slot that are for several ranks */
} round;

typedef struct card {
  int64_t sequence, root, part;
  int32_t kind, op, dtype, more; /* more: this rank has some for later rounds */
} card;
_Static_assert(sizeof(card) <= TT_SEGMENT_CARD, "a card has room for it");

static char *slot(const round *r, int rank) { return tt_segment_slot(r->segment, rank); }
static char *own_slot(const round *r) { return slot(r, r->c->rank); }
static bool is_root(const round *r) { return r->c->root == r->c->rank; }
static char *y_at(const round *r, int64_t offset) { return (char *)r->c->y + offset + r->at; }
static const char *x_at(const round *r, int64_t offset) {
  return (const char *)r->c->x + offset + r->at;
}

static void copy(void *to, const void *from, int64_t count) {
  if (count > 0) memcpy(to, from, (size_t)count);
}

/* -- Reducing -- */

/* All ranks' bytes [from, from + count) of their slots, to `to`, which may be among them. */
static tt_status reduce_to(const round *r, char *to, int64_t from, int64_t count) {
  enum { BLOCK = 8192 };
  _Alignas(64) char sum[BLOCK];
  for (int64_t at = 0; at < count; at += BLOCK) {
    int64_t some = count - at < BLOCK ? count - at : BLOCK;
    const char *first = slot(r, 0) + from + at;
    for (int rank = 1; rank < r->c->size; rank++) {
      if (!tt_combine(r->c->dtype, r->c->op, sum, first, slot(r, rank) + from + at, some / r->unit))
        return tt_error(TT_UNIMPLEMENTED, "%s of %s is not known", tt_reduction_name(r->c->op),
                        tt_dtype_name(r->c->dtype));
      first = sum;
    }
    copy(to + at, first, some);
  }
  return TT_SUCCESS;
}

static void give_y(const round *r) { copy(own_slot(r), y_at(r, 0), r->count); }

/* The part of a round's bytes that a rank reduces for all. */
static int64_t share(const round *r, int rank) {
  int64_t elements = r->count / r->unit;
  return elements * rank / r->c->size * r->unit;
}

/* Where there is little, each reduces all of it, which spares them a meeting. */
static tt_status take_all_reduced(const round *r) {
  enum { LITTLE = 16 << 10 };
  if (r->count <= LITTLE) return reduce_to(r, y_at(r, 0), 0, r->count);
  int64_t from = share(r, r->c->rank), to = share(r, r->c->rank + 1);
  TT_TRY(reduce_to(r, own_slot(r) + from, from, to - from));
  TT_TRY(tt_segment_meet(r->segment, r->until));
  for (int rank = 0; rank < r->c->size; rank++) {
    from = share(r, rank);
    copy(y_at(r, from), slot(r, rank) + from, share(r, rank + 1) - from);
  }
  return TT_SUCCESS;
}

static tt_status take_reduced(const round *r) {
  return is_root(r) ? reduce_to(r, y_at(r, 0), 0, r->count) : TT_SUCCESS;
}

static void give_parts(const round *r) {
  for (int rank = 0; rank < r->c->size; rank++)
    copy(own_slot(r) + rank * r->stride, x_at(r, rank * r->part), r->count);
}

static tt_status take_reduced_part(const round *r) {
  return reduce_to(r, y_at(r, 0), r->c->rank * r->stride, r->count);
}

/* -- Moving -- */

static void give_x(const round *r) { copy(own_slot(r), x_at(r, 0), r->count); }

static void give_y_of_root(const round *r) {
  if (is_root(r)) give_y(r);
}

static tt_status take_from_root(const round *r) {
  if (!is_root(r)) copy(y_at(r, 0), slot(r, (int)r->c->root), r->count);
  return TT_SUCCESS;
}

static tt_status take_each(const round *r) {
  for (int rank = 0; rank < r->c->size; rank++)
    copy(y_at(r, rank * r->part), slot(r, rank), r->count);
  return TT_SUCCESS;
}

static tt_status take_each_at_root(const round *r) {
  return is_root(r) ? take_each(r) : TT_SUCCESS;
}

static void give_parts_of_root(const round *r) {
  if (is_root(r)) give_parts(r);
}

static tt_status take_part_from_root(const round *r) {
  copy(y_at(r, 0), slot(r, (int)r->c->root) + r->c->rank * r->stride, r->count);
  return TT_SUCCESS;
}

static void give_nothing(const round *r) { (void)r; }
static tt_status take_nothing(const round *r) {
  (void)r;
  return TT_SUCCESS;
}

/* -- Exchanging parts of any sizes, of which each rank knows its own. Each says before a part how
 * much it is. -- */

static int64_t split(const round *r, const int64_t *splits, int64_t all, int rank) {
  return splits ? splits[rank] * r->unit : all * r->unit / r->c->size;
}

static int64_t in_round(const round *r, int64_t bytes) {
  int64_t rest = bytes - r->at, room = r->stride - (int64_t)sizeof rest;
  return rest < 0 ? 0 : rest < room ? rest : room;
}

static void give_exchanged(const round *r) {
  const tt_collective *c = r->c;
  const char *x = c->x;
  for (int rank = 0; rank < c->size; rank++) {
    int64_t bytes = split(r, c->x_splits, c->x_count, rank), count = in_round(r, bytes);
    char *to = own_slot(r) + rank * r->stride;
    memcpy(to, &count, sizeof count);
    assert(x || !count);
    if (count) copy(to + sizeof count, x + r->at, count);
    if (x) x += bytes;
  }
}

static tt_status take_exchanged(const round *r) {
  const tt_collective *c = r->c;
  char *y = c->y;
  for (int rank = 0; rank < c->size; rank++) {
    int64_t bytes = split(r, c->y_splits, c->y_count, rank), count = in_round(r, bytes), given;
    const char *from = slot(r, rank) + c->rank * r->stride;
    memcpy(&given, from, sizeof given);
    if (given != count)
      return tt_error(TT_UNAVAILABLE,
                      "the group's rank %d gives %" PRId64 " bytes of a part of which %" PRId64
                      " are expected",
                      rank, given + r->at, count + r->at);
    assert(y || !count);
    if (count) copy(y + r->at, from + sizeof given, count);
    if (y) y += bytes;
  }
  return TT_SUCCESS;
}

static int64_t largest(const round *r) {
  const tt_collective *c = r->c;
  int64_t most = 0;
  for (int rank = 0; rank < c->size; rank++) {
    int64_t gives = split(r, c->x_splits, c->x_count, rank);
    int64_t gets = split(r, c->y_splits, c->y_count, rank);
    if (gives > most) most = gives;
    if (gets > most) most = gets;
  }
  return most;
}

/* -- Rounds -- */

static const struct way {
  void (*give)(const round *r);
  tt_status (*take)(const round *r);
  bool of_x, spread; /* x is a rank's part, not y; a slot has a part for each rank */
} ways[TT_COLLECTIVE_KINDS] = {
    [TT_COLLECTIVE_ALL_REDUCE] = {give_y, take_all_reduced, false, false},
    [TT_COLLECTIVE_BROADCAST] = {give_y_of_root, take_from_root, false, false},
    [TT_COLLECTIVE_REDUCE] = {give_y, take_reduced, false, false},
    [TT_COLLECTIVE_ALL_GATHER] = {give_x, take_each, true, false},
    [TT_COLLECTIVE_REDUCE_SCATTER] = {give_parts, take_reduced_part, false, true},
    [TT_COLLECTIVE_ALL_TO_ALL] = {give_exchanged, take_exchanged, false, true},
    [TT_COLLECTIVE_GATHER] = {give_x, take_each_at_root, true, false},
    [TT_COLLECTIVE_SCATTER] = {give_parts_of_root, take_part_from_root, false, true},
    [TT_COLLECTIVE_BARRIER] = {give_nothing, take_nothing, false, false},
};

bool tt_shared_does(tt_collective_kind kind) {
  return (size_t)kind < TT_COLLECTIVE_KINDS && ways[kind].give;
}

static card card_of(const round *r) {
  const tt_collective *c = r->c;
  bool uneven = c->kind == TT_COLLECTIVE_ALL_TO_ALL, reduces = tt_collective_reduces(c->kind);
  return (card){.sequence = c->sequence,
                .kind = (int32_t)c->kind,
                .op = reduces ? (int32_t)c->op : 0,
                .dtype = (int32_t)c->dtype,
                .root = c->root,
                .part = uneven ? 0 : r->part,
                .more = r->at + r->count < r->part};
}

static bool agree(const card *a, const card *b) {
  return a->sequence == b->sequence && a->kind == b->kind && a->op == b->op &&
         a->dtype == b->dtype && a->root == b->root && a->part == b->part;
}

/* What the ranks ask for is one thing; and whether any has more to do. */
static tt_status compare_cards(const round *r, bool *more) {
  const card *own = tt_segment_card(r->segment, r->c->rank);
  *more = false;
  for (int rank = 0; rank < r->c->size; rank++) {
    const card *one = tt_segment_card(r->segment, rank);
    *more |= one->more != 0;
    if (!agree(own, one))
      return tt_error(TT_UNAVAILABLE, "the group's rank %d asks for another collective", rank);
  }
  return TT_SUCCESS;
}

static tt_status run_rounds(round *r, const struct way *way, int64_t room) {
  bool more = true;
  for (; more; r->at += room, tt_segment_turn(r->segment)) {
    int64_t rest = r->part - r->at;
    r->count = rest < 0 ? 0 : rest < room ? rest : room;
    card own = card_of(r);
    memcpy(tt_segment_card(r->segment, r->c->rank), &own, sizeof own);
    way->give(r);
    TT_TRY(tt_segment_meet(r->segment, r->until));
    TT_TRY(compare_cards(r, &more));
    TT_TRY(way->take(r));
  }
  return TT_SUCCESS;
}

tt_status tt_shared_run(tt_segment *segment, tt_collective *collective, int64_t timeout_ms) {
  const tt_collective *c = collective;
  const struct way *way = &ways[c->kind];
  int64_t until = tt_now_ms();
  if (c->root < 0 || c->root >= c->size)
    return tt_error(TT_INVALID_ARGUMENT, "the group has no rank %" PRId64, c->root);
  if (!tt_add_i64(until, timeout_ms, &until)) until = INT64_MAX;
  round r = {.segment = segment, .c = c, .until = until, .unit = tt_dtype_bytes(c->dtype)};
  r.stride = TT_SEGMENT_SLOT / (way->spread ? c->size : 1) / 64 * 64;
  r.part = (way->of_x ? c->x_count : c->y_count) * r.unit;
  int64_t room = r.stride;
  if (c->kind == TT_COLLECTIVE_ALL_TO_ALL) {
    r.part = largest(&r);
    room -= (int64_t)sizeof(int64_t);
  }
  tt_status status = run_rounds(&r, way, room);
  if (status) tt_segment_give_up(segment);
  return status;
}
