/* Moments and events. In asynchronous mode one thread makes moments ready, late and in order. */
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

typedef struct fake_callback {
  PJRT_Event_OnReadyCallback function;
  void *user;
  struct fake_callback *next;
} fake_callback;

/* All under the lock of fake.c, which the waiting functions below leave while they sleep. */
static bool fake_is_async, fake_thread_runs, fake_holds, fake_is_backwards;
static fake_moment *fake_queue_first, *fake_queue_last;

static void fake_nap(void) {
  struct timespec time = {0, 200000};
  (void)nanosleep(&time, NULL);
}

static PJRT_Error *moment_error(const fake_moment *moment) {
  return moment->failure ? fake_error(TT_INTERNAL, "%s", moment->failure) : NULL;
}

void fake_moment_release(fake_moment *moment) {
  if (moment && --moment->refs == 0) free(moment);
}

/* The first that waits, or the last. */
static fake_moment *take_next(void) {
  fake_moment **link = &fake_queue_first, *before = NULL;
  for (; fake_is_backwards && *link && (*link)->next; link = &(*link)->next) before = *link;
  fake_moment *moment = *link;
  if (!moment) return NULL;
  *link = moment->next;
  if (fake_queue_last == moment) fake_queue_last = before;
  return moment;
}

static void *fake_thread(void *unused) {
  (void)unused;
  for (;;) {
    fake_nap();
    fake_lock();
    fake_moment *moment = fake_holds ? NULL : take_next();
    fake_callback *callbacks = NULL;
    if (moment) {
      moment->ready = true;
      callbacks = moment->callbacks;
      moment->callbacks = NULL;
    }
    fake_unlock();
    for (fake_callback *next; callbacks; callbacks = next) {
      next = callbacks->next;
      callbacks->function(moment_error(moment), callbacks->user);
      free(callbacks);
    }
    fake_lock();
    fake_moment_release(moment);
    fake_unlock();
  }
  return NULL;
}

fake_moment *fake_moment_create(const char *failure) {
  fake_moment *moment = fake_alloc(sizeof *moment);
  moment->refs = 1;
  moment->failure = failure;
  moment->ready = !fake_is_async;
  if (moment->ready) return moment;
  moment->refs++;
  if (fake_queue_last) fake_queue_last->next = moment;
  else fake_queue_first = moment;
  fake_queue_last = moment;
  pthread_t thread;
  if (!fake_thread_runs && pthread_create(&thread, NULL, fake_thread, NULL) == 0) {
    (void)pthread_detach(thread);
    fake_thread_runs = true;
  }
  return moment;
}

PJRT_Event *fake_event_create(fake_moment *moment) {
  PJRT_Event *event = fake_alloc(sizeof *event);
  event->moment = moment;
  moment->refs++;
  atomic_fetch_add(&fake_live, 1);
  return event;
}

void tt_fake_async(bool on) {
  fake_lock();
  fake_is_async = on;
  fake_unlock();
}

void tt_fake_hold(bool on) {
  fake_lock();
  fake_holds = on;
  fake_unlock();
}

void tt_fake_backwards(bool on) {
  fake_lock();
  fake_is_backwards = on;
  fake_unlock();
}

FAKE(Event_Destroy) {
  fake_lock();
  fake_moment_release(args->event->moment);
  fake_unlock();
  free(args->event);
  atomic_fetch_sub(&fake_live, 1);
  FAKE_ENTER(Event_Destroy);
  return NULL;
}

FAKE(Event_IsReady) {
  FAKE_ENTER(Event_IsReady);
  fake_lock();
  args->is_ready = args->event->moment->ready;
  fake_unlock();
  return NULL;
}

FAKE(Event_Await) {
  fake_moment *moment = args->event->moment;
  for (bool ready = false; !ready;) {
    fake_lock();
    ready = moment->ready;
    fake_unlock();
    if (!ready) fake_nap();
  }
  FAKE_ENTER(Event_Await);
  return moment_error(moment);
}

FAKE(Event_OnReady) {
  FAKE_ENTER(Event_OnReady);
  fake_moment *moment = args->event->moment;
  fake_lock();
  bool ready = moment->ready;
  if (!ready) {
    fake_callback *callback = fake_alloc(sizeof *callback);
    *callback = (fake_callback){args->callback, args->user_arg, moment->callbacks};
    moment->callbacks = callback;
  }
  fake_unlock();
  if (ready) args->callback(moment_error(moment), args->user_arg);
  return NULL;
}
