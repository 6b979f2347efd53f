#include "dist/failure.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* -- Who was not here; by a way of one's own to the board -- */

typedef struct asking {
  const tt_members *members;
  const tt_board *board;
  const char *order;
  const tt_collective *c;
  tt_arena arena;
  tt_issues *ranks; /* [size]; of those that are silent the count is 0 */
} asking;

static char *ended_key(tt_arena *arena, const char *order, int rank) {
  return tt_arena_printf(arena, "ended/%s/%d", order, rank);
}

static tt_status tell(const tt_members *m, const tt_board *board, const char *order,
                      tt_arena *arena) {
  tt_issues own;
  TT_TRY(tt_issues_recorded(arena, m->name, m->ranks, m->size, &own));
  return tt_board_tell(board, ended_key(arena, order, m->rank), &own);
}

static tt_status look(asking *a, int rank) {
  tt_text text = TT_TEXT_INIT;
  bool found = false;
  char *key = ended_key(&a->arena, a->order, rank);
  tt_status status = key ? a->board->get(a->board->user, key, &text, &found) : tt_out_of_memory();
  if (!status) status = tt_text_status(&text);
  if (!status && text.size) status = tt_issues_unpack(&a->arena, text.data, &a->ranks[rank]);
  tt_text_deinit(&text);
  return status;
}

static tt_status ask_all(asking *a) {
  enum { TRIES = 40, PAUSE_MS = 50 };
  const tt_members *m = a->members;
  a->ranks = tt_arena_alloc(&a->arena, (size_t)m->size * sizeof *a->ranks);
  if (!a->ranks) return tt_out_of_memory();
  TT_TRY(tell(m, a->board, a->order, &a->arena));
  for (int try = 0, known = 0; try < TRIES && known < m->size; try++) {
    if (try) tt_sleep_ms(PAUSE_MS);
    known = 0;
    for (int rank = 0; rank < m->size; rank++) {
      a->ranks[rank].rank = m->ranks[rank];
      if (!a->ranks[rank].count) TT_TRY(look(a, rank));
      known += a->ranks[rank].count > 0;
    }
  }
  return TT_SUCCESS;
}

/* What a process that an exception ended has said of it; nothing for all others. */
static tt_status add_last_words(asking *a, int rank, tt_text *text) {
  tt_text words = TT_TEXT_INIT;
  bool found = false;
  char *key = tt_arena_printf(&a->arena, "left/%d", rank);
  tt_status status = key ? a->board->get(a->board->user, key, &words, &found) : tt_out_of_memory();
  if (!status && found) tt_text_printf(text, " (it ended with %s)", words.size ? words.data : "");
  tt_text_deinit(&words);
  return status;
}

/* Of a message. */
static tt_status add_other_end(asking *a, tt_text *text) {
  if (a->c->root < 0 || a->c->root >= a->members->size) {
    tt_text_printf(text, "; it was to come from any rank");
    return TT_SUCCESS;
  }
  tt_text_printf(text, "; the other end of the message is rank %" PRId64,
                 a->members->ranks[a->c->root]);
  return add_last_words(a, (int)a->c->root, text);
}

static tt_status add_missing(asking *a, tt_text *text) {
  tt_text missing = TT_TEXT_INIT;
  tt_status status = TT_SUCCESS;
  int count = 0;
  for (int i = 0; !status && i < a->members->size; i++) {
    const tt_issues *one = &a->ranks[i];
    int64_t last = one->count ? one->all[one->count - 1].sequence : -1;
    if (one->count && last >= a->c->sequence) continue;
    tt_text_printf(&missing, "%s%" PRId64, count++ ? ", " : "", one->rank);
    if (one->count) tt_text_printf(&missing, " (it failed at collective %" PRId64 ")", last);
    else status = add_last_words(a, i, &missing);
  }
  if (!status) status = tt_text_status(&missing);
  if (!status && count)
    tt_text_printf(text, "; %s did not arrive: %s", count > 1 ? "these ranks" : "this rank",
                   missing.data);
  else tt_text_printf(text, "; all ranks had arrived");
  tt_text_deinit(&missing);
  return status;
}

static tt_status add_parting(asking *a, tt_text *text) {
  tt_text where = TT_TEXT_INIT;
  int telling = 0;
  for (int i = 0; i < a->members->size; i++)
    if (a->ranks[i].count) a->ranks[telling++] = a->ranks[i];
  tt_issues_part(a->ranks, telling, &where);
  if (where.size) tt_text_printf(text, "; the ranks part at %s", where.data);
  tt_status status = tt_text_status(&where);
  tt_text_deinit(&where);
  return status;
}

static tt_status add_absentees(const tt_members *members, const char *order, const tt_collective *c,
                               tt_text *text) {
  tt_board board;
  TT_TRY(members->board.again(members->board.user, &board));
  asking a = {.members = members, .board = &board, .order = order, .c = c};
  tt_status status = TT_SUCCESS;
  if (tt_collective_is_message(c->kind)) {
    status = add_other_end(&a, text);
  } else {
    status = ask_all(&a);
    if (!status) status = add_missing(&a, text);
    if (!status) status = add_parting(&a, text);
  }
  tt_arena_deinit(&a.arena);
  board.release(board.user);
  return status ? status : tt_text_status(text);
}

/* -- Patience. A board whose process is stopped, or out of reach, may never answer, and who asks it
 * cannot be interrupted: a thread that asks is left behind then. -- */

typedef struct errand {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int refs; /* who waits, and who does it; guarded by the lock, as what follows */
  bool done;
  tt_status status;
  tt_text answer;
  tt_members *members; /* theirs who does it; NULL: the farewell */
  char *order;
  tt_collective c;
} errand;

static void leave(errand *e) {
  pthread_mutex_lock(&e->lock);
  bool last = --e->refs == 0;
  pthread_mutex_unlock(&e->lock);
  if (!last) return;
  pthread_cond_destroy(&e->changed);
  pthread_mutex_destroy(&e->lock);
  tt_status_release(e->status);
  tt_text_deinit(&e->answer);
  tt_free(e->order);
  tt_free(e);
}

static void tell_last(const tt_members *members) {
  tt_arena arena = TT_ARENA_INIT;
  tt_board board;
  tt_status status = members->board.again(members->board.user, &board);
  if (!status) {
    status = tell(members, &board, "all", &arena);
    board.release(board.user);
  }
  if (status)
    tt_log(TT_LOG_PLUGIN, "the other ranks were not told that this process ends: %s",
           tt_status_message(status));
  tt_status_release(status);
  tt_arena_deinit(&arena);
}

static void *run_errand(void *user) {
  errand *e = user;
  tt_text answer = TT_TEXT_INIT;
  tt_status status = TT_SUCCESS;
  if (e->members) status = add_absentees(e->members, e->order, &e->c, &answer);
  else tt_members_visit(tell_last);
  tt_members_release(e->members);
  pthread_mutex_lock(&e->lock);
  e->status = status;
  e->answer = answer;
  e->done = true;
  pthread_cond_signal(&e->changed);
  pthread_mutex_unlock(&e->lock);
  leave(e);
  return NULL;
}

static errand *create_errand(tt_members *members, const char *order, const tt_collective *c) {
  errand *e = tt_calloc(1, sizeof *e);
  char *copy = tt_strndup(order, strlen(order));
  if (!e || !copy) {
    tt_free(e);
    tt_free(copy);
    return NULL;
  }
  *e = (errand){.refs = 2, .order = copy};
  if (members) e->members = tt_members_retain(members);
  if (c) e->c = *c;
  pthread_mutex_init(&e->lock, NULL);
  tt_cond_init(&e->changed);
  return e;
}

/* Whether it was done in time. */
static bool wait_for(errand *e, int seconds) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_errand, e)) {
    tt_members_release(e->members);
    leave(e);
    return false;
  }
  pthread_detach(thread);
  struct timespec until = tt_deadline(seconds * INT64_C(1000));
  pthread_mutex_lock(&e->lock);
  while (!e->done && pthread_cond_timedwait(&e->changed, &e->lock, &until) != ETIMEDOUT) continue;
  bool done = e->done;
  pthread_mutex_unlock(&e->lock);
  return done;
}

tt_status tt_members_explain(tt_members *members, const char *order, const tt_collective *c,
                             const char *what) {
  enum { PATIENCE_S = 8 };
  errand *e = create_errand(members, order, c);
  const char *who = "; who is missing is not known, since the store does not answer: its process, "
                    "or the way to it, may be what failed";
  if (e && wait_for(e, PATIENCE_S)) {
    if (e->status) tt_log(TT_LOG_PLUGIN, "the store failed: %s", tt_status_message(e->status));
    else who = e->answer.size ? e->answer.data : "";
  }
  tt_status status = tt_error(TT_UNAVAILABLE, "%s%s (the time-out is %g s)", what, who,
                              (double)tt_members_timeout(members) / 1000);
  if (e) leave(e);
  return status;
}

tt_status tt_members_leave(tt_members *members, const char *why) {
  char key[32];
  snprintf(key, sizeof key, "left/%d", members->rank);
  return members->board.put(members->board.user, key, why, strlen(why));
}

void tt_members_farewell(void) {
  enum { PATIENCE_S = 2 };
  errand *e = create_errand(NULL, "all", NULL);
  if (!e) return;
  (void)wait_for(e, PATIENCE_S);
  leave(e);
}
