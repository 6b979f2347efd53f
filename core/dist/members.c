#include "dist/members.h"

#include "stream/meeting.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All that live. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_members *first;

tt_status tt_members_create(const char *name, int rank, int size, const int64_t *ranks,
                            const tt_board *board, tt_members **out) {
  tt_members *members = tt_calloc(1, sizeof *members);
  char *own_name = tt_strndup(name, strlen(name));
  int64_t *own_ranks = tt_malloc((size_t)size * sizeof *own_ranks);
  *out = NULL;
  if (!members || !own_name || !own_ranks) {
    tt_free(members);
    tt_free(own_name);
    tt_free(own_ranks);
    board->release(board->user);
    return tt_out_of_memory();
  }
  memcpy(own_ranks, ranks, (size_t)size * sizeof *ranks);
  *members = (tt_members){.name = own_name,
                          .rank = rank,
                          .size = size,
                          .ranks = own_ranks,
                          .board = *board,
                          .number = -1,
                          .timeout_ms = 600000,
                          .refs = 1};
  pthread_mutex_lock(&lock);
  members->next = first;
  first = members;
  pthread_mutex_unlock(&lock);
  *out = members;
  return TT_SUCCESS;
}

tt_members *tt_members_retain(tt_members *members) {
  members->refs++;
  return members;
}

void tt_members_release(tt_members *members) {
  if (!members || --members->refs) return;
  pthread_mutex_lock(&lock);
  tt_members **at = &first;
  while (*at != members) at = &(*at)->next;
  *at = members->next;
  pthread_mutex_unlock(&lock);
  members->board.release(members->board.user);
  tt_free((void *)members->name);
  tt_free((void *)members->ranks);
  tt_free(members);
}

void tt_members_visit(void (*visit)(const tt_members *members)) {
  pthread_mutex_lock(&lock);
  for (tt_members *one = first; one; one = one->next) visit(one);
  pthread_mutex_unlock(&lock);
}

int64_t tt_members_step(const tt_members *members) {
  const int64_t *ranks = members->ranks;
  int64_t step = members->size > 1 ? ranks[1] - ranks[0] : 1;
  for (int i = 2; i < members->size; i++)
    if (ranks[i] - ranks[i - 1] != step) return -1;
  return step;
}

void tt_members_set_timeout(tt_members *members, int64_t ms) { members->timeout_ms = ms; }
int64_t tt_members_timeout(const tt_members *members) { return members->timeout_ms; }

/* -- Waiting for words -- */

/* Since a rank that is a thread of this process has failed. */
static tt_status meetings_end(void) {
  tt_status over = tt_meeting_error();
  if (!over) return TT_SUCCESS;
  tt_status status = tt_error(TT_UNAVAILABLE, "%s", tt_status_message(over));
  tt_status_release(over);
  return status;
}

/* *found is false where it is not there in time, which has begun at `begun`. */
static tt_status await(const tt_members *m, const char *key, int64_t begun, tt_text *out,
                       bool *found) {
  return tt_board_await(&m->board, key, begun + m->timeout_ms, meetings_end, out, found);
}

static char *compare_key(tt_arena *arena, int64_t sequence, int rank) {
  return tt_arena_printf(arena, "debug/%" PRId64 "/%d", sequence, rank);
}

static tt_status is_silent(const tt_members *m, int rank, const tt_issue *issue) {
  return tt_error(TT_UNAVAILABLE,
                  "process group %s: Debug compares what the ranks issue, and rank %" PRId64
                  " has not said what its collective %" PRId64 " is, while this one's is %s%s%s "
                  "(the time-out is %g s; all ranks have to be in Debug mode)",
                  m->name, m->ranks[rank], issue->sequence, issue->what, *issue->line ? " at " : "",
                  issue->line, (double)m->timeout_ms / 1000);
}

static tt_status hear(const tt_members *m, const tt_issue *issue, int rank, int64_t begun,
                      tt_arena *arena, tt_issues *out) {
  tt_text text = TT_TEXT_INIT;
  bool found = false;
  char *key = compare_key(arena, issue->sequence, rank);
  out->rank = m->ranks[rank];
  tt_status status = key ? await(m, key, begun, &text, &found) : tt_out_of_memory();
  if (!status && !found) status = is_silent(m, rank, issue);
  if (!status) status = tt_issues_unpack(arena, text.data, out);
  tt_text_deinit(&text);
  return status;
}

tt_status tt_board_tell(const tt_board *board, const char *key, const tt_issues *issues) {
  tt_text text = TT_TEXT_INIT;
  tt_issues_pack(issues, &text);
  tt_status status = tt_text_status(&text);
  if (!status)
    status = key ? board->put(board->user, key, text.data, text.size) : tt_out_of_memory();
  tt_text_deinit(&text);
  return status;
}

static tt_status part(const tt_members *m, const tt_issues *ranks) {
  tt_text text = TT_TEXT_INIT;
  tt_issues_part(ranks, m->size, &text);
  tt_status status = tt_text_status(&text);
  if (!status && text.size)
    status = tt_error(TT_UNAVAILABLE, "process group %s: the ranks part at %s", m->name, text.data);
  tt_text_deinit(&text);
  return status;
}

static tt_status compare(const tt_members *m, const tt_collective *c, tt_arena *arena) {
  int64_t begun = tt_now_ms(), sequence = c->sequence;
  tt_issue issue;
  tt_issues own = {.all = &issue, .count = 1};
  TT_TRY(tt_issue_of(arena, c, tt_dtype_name(c->dtype), m->ranks, &issue));
  tt_issues *ranks = tt_arena_alloc(arena, (size_t)m->size * sizeof *ranks);
  if (!ranks) return tt_out_of_memory();
  TT_TRY(tt_board_tell(&m->board, compare_key(arena, sequence, m->rank), &own));
  for (int i = 0; i < m->size; i++) TT_TRY(hear(m, &issue, i, begun, arena, &ranks[i]));
  if (sequence) { /* who is here has read what was told before */
    char *key = compare_key(arena, sequence - 1, m->rank);
    TT_TRY(key ? m->board.remove(m->board.user, key) : tt_out_of_memory());
  }
  return part(m, ranks);
}

tt_status tt_members_compare(tt_members *members, const tt_collective *c) {
  tt_arena arena = TT_ARENA_INIT;
  tt_collective own = *c;
  own.size = members->size;
  tt_status status = compare(members, &own, &arena);
  tt_arena_deinit(&arena);
  return status;
}

static tt_status hear_number(const tt_members *m, const char *what, int rank, int64_t begun,
                             int64_t *most) {
  tt_text key = TT_TEXT_INIT, text = TT_TEXT_INIT;
  bool found = false;
  tt_text_printf(&key, "%s/%d", what, rank);
  tt_status status = tt_text_status(&key);
  if (!status) status = await(m, key.data, begun, &text, &found);
  if (!status && !found)
    status = tt_error(TT_UNAVAILABLE,
                      "process group %s: rank %" PRId64 " has not said the size of its parts (the "
                      "time-out is %g s)",
                      m->name, m->ranks[rank], (double)m->timeout_ms / 1000);
  int64_t number = status ? 0 : strtoll(text.data, NULL, 10);
  if (number > *most) *most = number;
  tt_text_deinit(&key);
  tt_text_deinit(&text);
  return status;
}

tt_status tt_members_most(tt_members *members, const char *what, int64_t own, int64_t *most) {
  tt_text key = TT_TEXT_INIT;
  char number[24];
  int64_t begun = tt_now_ms();
  tt_text_printf(&key, "%s/%d", what, members->rank);
  snprintf(number, sizeof number, "%" PRId64, own);
  tt_status status = tt_text_status(&key);
  if (!status) status = members->board.put(members->board.user, key.data, number, strlen(number));
  tt_text_deinit(&key);
  *most = own;
  for (int i = 0; !status && i < members->size; i++)
    status = hear_number(members, what, i, begun, most);
  return status;
}

/* Members of one rank, which may be a thread of this process as others are, know of its groups. */
static int64_t first_free(const tt_members *members) {
  int64_t rank = members->ranks[members->rank], largest = -1;
  pthread_mutex_lock(&lock);
  for (const tt_members *one = first; one; one = one->next)
    if (one->ranks[one->rank] == rank && one->number > largest) largest = one->number;
  pthread_mutex_unlock(&lock);
  return largest + 1;
}

/* The largest that any of them proposes is free for all of them. */
tt_status tt_members_take_number(tt_members *members) {
  int64_t number = 0;
  TT_TRY(tt_members_most(members, "number", first_free(members), &number));
  pthread_mutex_lock(&lock);
  members->number = number;
  pthread_mutex_unlock(&lock);
  return TT_SUCCESS;
}
