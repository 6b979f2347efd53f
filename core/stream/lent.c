#include "stream/lent.h"

#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static tt_lent *all;

void tt_lent_add(tt_lent *lent, const void *data, int64_t size, bool written, const tt_queue *queue,
                 uint64_t ticket) {
  pthread_mutex_lock(&mutex);
  *lent = (tt_lent){all, &all, data, (const char *)data + size, written, queue, ticket};
  if (all) all->link = &lent->next;
  all = lent;
  pthread_mutex_unlock(&mutex);
}

void tt_lent_remove(tt_lent *lent) {
  pthread_mutex_lock(&mutex);
  if (lent->link) *lent->link = lent->next;
  if (lent->next) lent->next->link = lent->link;
  pthread_mutex_unlock(&mutex);
}

uint64_t tt_lent_last(const tt_queue *queue, const void *data, int64_t size, bool written) {
  const char *begin = data, *end = begin + size;
  uint64_t last = 0;
  pthread_mutex_lock(&mutex);
  for (const tt_lent *lent = all; lent; lent = lent->next) {
    bool meets = lent->queue == queue && lent->begin < end && begin < lent->end;
    if (meets && (written || lent->written) && lent->ticket > last) last = lent->ticket;
  }
  pthread_mutex_unlock(&mutex);
  return last;
}
