#include "dist/issue.h"

#include "dist/flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDED = 256 }; /* of the flight record: a store is not made for more */
enum { SHOWN = 8 };      /* ranks in one list */
#define FIELD '\x1f'
#define END '\n'

/* -- What is said -- */

/* What each rank's part is: what it gets, but where it gets all. */
static int64_t part_of(const tt_collective *c) {
  bool gathers = c->kind == TT_COLLECTIVE_ALL_GATHER || c->kind == TT_COLLECTIVE_GATHER;
  return gathers ? c->x_count : c->y_count;
}

static const char *words_of(tt_arena *arena, const tt_collective *c, const char *unit,
                            const int64_t *ranks) {
  const char *name = tt_collective_name(c->kind);
  if (c->kind == TT_COLLECTIVE_BARRIER) return name;
  bool from = c->kind == TT_COLLECTIVE_BROADCAST || c->kind == TT_COLLECTIVE_SCATTER;
  bool to = c->kind == TT_COLLECTIVE_REDUCE || c->kind == TT_COLLECTIVE_GATHER;
  bool reduces = tt_collective_reduces(c->kind);
  int64_t root = c->root >= 0 && c->root < c->size ? ranks[c->root] : c->root;
  char many[24] = "", rooted[32] = "";
  if (c->kind != TT_COLLECTIVE_ALL_TO_ALL) snprintf(many, sizeof many, "%" PRId64 " ", part_of(c));
  if (from || to) snprintf(rooted, sizeof rooted, " %s rank %" PRId64, from ? "from" : "to", root);
  return tt_arena_printf(arena, "%s%s%s%s of %s%s%s", name, reduces ? " (" : "",
                         reduces ? tt_reduction_name(c->op) : "", reduces ? ")" : "", many, unit,
                         rooted);
}

tt_status tt_issue_of(tt_arena *arena, const tt_collective *c, const char *unit,
                      const int64_t *ranks, tt_issue *out) {
  *out = (tt_issue){.sequence = c->sequence,
                    .what = words_of(arena, c, unit, ranks),
                    .line = tt_dist_line(c->site),
                    .x_splits = c->x_splits,
                    .y_splits = c->y_splits,
                    .split_count = c->x_splits ? c->size : 0};
  return out->what ? TT_SUCCESS : tt_out_of_memory();
}

static tt_status of_flight(tt_arena *arena, const tt_flight *one, const int64_t *ranks, int size,
                           tt_issue *out) {
  tt_collective c = {.kind = one->kind,
                     .op = one->op,
                     .size = size,
                     .root = one->root,
                     .x_count = one->x_count,
                     .y_count = one->y_count,
                     .sequence = one->sequence,
                     .site = one->site};
  const char *unit = tt_collective_reduces(one->kind) ? tt_dtype_name(one->dtype) : "bytes";
  return tt_issue_of(arena, &c, unit, ranks, out);
}

tt_status tt_issues_recorded(tt_arena *arena, const char *group, const int64_t *ranks, int size,
                             tt_issues *out) {
  tt_flight one;
  tt_issue *end = tt_arena_alloc(arena, RECORDED * sizeof *end);
  if (!end) return tt_out_of_memory();
  end += RECORDED;
  out->count = 0;
  for (int64_t i = tt_flight_count() - 1; i >= 0 && out->count < RECORDED; i--) {
    if (!tt_flight_get(i, &one)) break;
    if (tt_collective_is_message(one.kind) || strncmp(one.group, group, sizeof one.group - 1) != 0)
      continue;
    if (out->count && one.sequence >= end[-out->count].sequence) break; /* an earlier group's */
    TT_TRY(of_flight(arena, &one, ranks, size, &end[-out->count - 1]));
    out->count++;
  }
  out->all = end - out->count;
  return TT_SUCCESS;
}

/* -- As a text -- */

static void pack_splits(const int64_t *splits, int64_t count, tt_text *text) {
  for (int64_t i = 0; i < count; i++) tt_text_printf(text, "%" PRId64 " ", splits[i]);
}

void tt_issues_pack(const tt_issues *issues, tt_text *text) {
  for (int64_t i = 0; i < issues->count; i++) {
    const tt_issue *one = &issues->all[i];
    tt_text_printf(text, "%" PRId64 "%c%s%c%s%c", one->sequence, FIELD, one->what, FIELD, one->line,
                   FIELD);
    pack_splits(one->x_splits, one->split_count, text);
    pack_splits(one->y_splits, one->split_count, text);
    tt_text_printf(text, "%c", END);
  }
}

static int64_t count_of(const char *text, const char *end, char sign) {
  int64_t count = 0;
  for (; text < end; text++) count += *text == sign;
  return count;
}

/* Behind the field is NUL then. */
static char *take_field(char **at) {
  char *field = *at, *end = strchr(field, FIELD);
  if (!end) end = field + strlen(field);
  *at = *end ? end + 1 : end;
  *end = 0;
  return field;
}

/* The line is ours to change. */
static tt_status unpack_line(tt_arena *arena, char *line, tt_issue *out) {
  out->sequence = strtoll(take_field(&line), NULL, 10);
  out->what = take_field(&line);
  out->line = take_field(&line);
  int64_t count = count_of(line, line + strlen(line), ' ');
  int64_t *splits = tt_arena_alloc(arena, (size_t)count * sizeof *splits);
  if (!splits) return tt_out_of_memory();
  for (int64_t i = 0; i < count; i++) splits[i] = strtoll(line, &line, 10);
  out->split_count = count / 2;
  out->x_splits = splits;
  out->y_splits = splits + count / 2;
  return TT_SUCCESS;
}

tt_status tt_issues_unpack(tt_arena *arena, const char *text, tt_issues *out) {
  size_t size = strlen(text);
  char *line = tt_arena_copy(arena, text, size + 1);
  out->count = 0;
  out->all = tt_arena_alloc(arena, (size_t)count_of(text, text + size, END) * sizeof *out->all);
  if (!line || !out->all) return tt_out_of_memory();
  for (char *end; (end = strchr(line, END)); line = end + 1) {
    *end = 0;
    TT_TRY(unpack_line(arena, line, &out->all[out->count++]));
  }
  return TT_SUCCESS;
}

/* -- Where they part -- */

static const tt_issue *find(const tt_issues *rank, int64_t sequence) {
  for (int64_t i = 0; i < rank->count; i++)
    if (rank->all[i].sequence == sequence) return &rank->all[i];
  return NULL;
}

static bool all_tell_of(const tt_issues *ranks, int count, int64_t sequence) {
  for (int i = 0; i < count; i++)
    if (!find(&ranks[i], sequence)) return false;
  return true;
}

static bool same(const tt_issues *ranks, int a, int b, int64_t sequence) {
  return !strcmp(find(&ranks[a], sequence)->what, find(&ranks[b], sequence)->what);
}

/* The first rank that says what rank `i` says. */
static int first_like(const tt_issues *ranks, int i, int64_t sequence) {
  int first = 0;
  while (!same(ranks, first, i, sequence)) first++;
  return first;
}

static void list_alike(const tt_issues *ranks, int count, int first, int64_t sequence,
                       tt_text *text) {
  int alike = 0;
  for (int i = first; i < count; i++) alike += same(ranks, first, i, sequence);
  tt_text_printf(text, "rank%s ", alike > 1 ? "s" : "");
  for (int i = first, shown = 0; i < count && shown < SHOWN; i++)
    if (same(ranks, first, i, sequence))
      tt_text_printf(text, "%s%" PRId64, shown++ ? ", " : "", ranks[i].rank);
  if (alike > SHOWN) tt_text_printf(text, " and %d more", alike - SHOWN);
}

/* Ranks that say the same are told of together, with the line of the first of them. */
static bool words_part(const tt_issues *ranks, int count, int64_t sequence, tt_text *text) {
  int other = 0;
  while (other < count && same(ranks, 0, other, sequence)) other++;
  if (other == count) return false;
  tt_text_printf(text, "collective %" PRId64 ":", sequence);
  for (int i = 0; i < count; i++) {
    if (first_like(ranks, i, sequence) < i) continue;
    const tt_issue *one = find(&ranks[i], sequence);
    tt_text_printf(text, "%s ", i ? ";" : "");
    list_alike(ranks, count, i, sequence, text);
    tt_text_printf(text, ": %s%s%s", one->what, *one->line ? " at " : "", one->line);
  }
  return true;
}

/* What one rank sends is what the other one takes. */
static bool splits_part(const tt_issues *ranks, int count, int64_t sequence, tt_text *text) {
  for (int from = 0; from < count; from++) {
    const tt_issue *sender = find(&ranks[from], sequence);
    if (sender->split_count != count) continue;
    for (int to = 0; to < count; to++) {
      const tt_issue *taker = find(&ranks[to], sequence);
      if (taker->split_count != count) continue;
      int64_t sent = sender->x_splits[to], taken = taker->y_splits[from];
      if (sent == taken) continue;
      tt_text_printf(text,
                     "collective %" PRId64 ": rank %" PRId64 ": %s sends %" PRId64
                     " elements to rank %" PRId64 " at %s; rank %" PRId64 " takes %" PRId64
                     " from it at %s",
                     sequence, ranks[from].rank, sender->what, sent, ranks[to].rank, sender->line,
                     ranks[to].rank, taken, taker->line);
      return true;
    }
  }
  return false;
}

void tt_issues_part(const tt_issues *ranks, int count, tt_text *text) {
  for (int64_t i = 0; count && i < ranks[0].count; i++) {
    int64_t sequence = ranks[0].all[i].sequence;
    if (!all_tell_of(ranks, count, sequence)) continue;
    if (words_part(ranks, count, sequence, text) || splits_part(ranks, count, sequence, text))
      return;
  }
}
