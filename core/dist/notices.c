#include "dist/notices.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "stream/meeting.h"

#include <pthread.h>
#include <string.h>

struct tt_notices {
  char *group;
  int size, refs;
  struct tt_notices *next;
  int64_t counts[]; /* [size * size]: sent from one to another, and not asked for */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all, and of what they count */
static tt_notices *all;

static tt_status make(const char *group, int size, tt_notices **out) {
  size_t cells = (size_t)size * (size_t)size;
  tt_notices *made = tt_calloc(1, sizeof *made + cells * sizeof made->counts[0]);
  char *name = tt_strndup(group, strlen(group));
  if (!made || !name) {
    tt_free(made);
    tt_free(name);
    return tt_out_of_memory();
  }
  made->group = name;
  made->size = size;
  made->next = all;
  *out = all = made;
  return TT_SUCCESS;
}

tt_status tt_notices_retain(const char *group, int size, tt_notices **out) {
  tt_status status = TT_SUCCESS;
  pthread_mutex_lock(&lock);
  tt_notices *found = all;
  while (found && strcmp(found->group, group) != 0) found = found->next;
  if (!found) status = make(group, size, &found);
  if (!status) found->refs++;
  pthread_mutex_unlock(&lock);
  *out = status ? NULL : found;
  return status;
}

void tt_notices_release(tt_notices *notices) {
  if (!notices) return;
  pthread_mutex_lock(&lock);
  bool last = --notices->refs == 0;
  tt_notices **at = &all;
  while (*at != notices) at = &(*at)->next;
  if (last) *at = notices->next;
  pthread_mutex_unlock(&lock);
  if (!last) return;
  tt_free(notices->group);
  tt_free(notices);
}

static void count(tt_notices *n, int from, int to, int change) {
  pthread_mutex_lock(&lock);
  n->counts[from * n->size + to] += change;
  pthread_mutex_unlock(&lock);
}

void tt_notices_sent(tt_notices *notices, int from, int to) { count(notices, from, to, 1); }
void tt_notices_asked(tt_notices *notices, int from, int to) { count(notices, from, to, -1); }

bool tt_notices_find(tt_notices *notices, int to, int *from) {
  tt_notices *n = notices;
  pthread_mutex_lock(&lock);
  int rank = 0;
  while (rank < n->size && n->counts[rank * n->size + to] <= 0) rank++;
  bool found = rank < n->size;
  if (found) n->counts[rank * n->size + to]--;
  pthread_mutex_unlock(&lock);
  if (found) *from = rank;
  return found;
}

tt_status tt_notices_await(tt_notices *notices, int to, int64_t timeout_ms, int *from) {
  int64_t begun = tt_now_ms();
  while (!tt_notices_find(notices, to, from)) {
    tt_status over = tt_meeting_error();
    if (over) return over;
    TT_TRY(tt_interrupted());
    if (tt_now_ms() - begun >= timeout_ms)
      return tt_error(TT_UNAVAILABLE,
                      "no rank has sent a message to rank %d (the time-out is %g s)", to,
                      (double)timeout_ms / 1000);
    tt_sleep_ms(1);
  }
  return TT_SUCCESS;
}
