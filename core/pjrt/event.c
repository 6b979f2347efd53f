#include "pjrt/internal.h"

#include <pthread.h>
#include <stdatomic.h>

tt_status tt_pjrt_await(const PJRT_Api *api, PJRT_Event *event) {
  TT_ARGS(Event_Await, args, .event = event);
  return TT_CALL(api, Event_Await, &args);
}

void tt_pjrt_event_destroy(const PJRT_Api *api, PJRT_Event *event) {
  if (!event) return;
  TT_ARGS(Event_Destroy, args, .event = event);
  TT_DESTROY(api, Event_Destroy, &args);
}

tt_status tt_event_await(tt_client *client, tt_event *event) {
  return tt_pjrt_await(client->api, event);
}

bool tt_event_ready(tt_client *client, tt_event *event) {
  TT_ARGS(Event_IsReady, args, .event = event);
  PJRT_Error *error = client->api->PJRT_Event_IsReady(&args);
  if (!error) return args.is_ready;
  tt_pjrt_drop(client->api, error, "Event_IsReady");
  return true; /* waiting for it will tell what is wrong */
}

void tt_event_destroy(tt_client *client, tt_event *event) {
  tt_pjrt_event_destroy(client->api, event);
}

typedef struct listener {
  const PJRT_Api *api;
  void (*fn)(void *user, tt_status status);
  void *user;
} listener;

static void tell(PJRT_Error *error, void *user) {
  listener *one = user;
  tt_status status = error ? tt_pjrt_error_status(one->api, error, "Event") : TT_SUCCESS;
  one->fn(one->user, status);
  tt_free(one);
}

tt_status tt_event_on_ready(tt_client *client, tt_event *event,
                            void (*fn)(void *user, tt_status status), void *user) {
  listener *one = tt_malloc(sizeof *one);
  if (!one) return tt_out_of_memory();
  *one = (listener){client->api, fn, user};
  TT_ARGS(Event_OnReady, args, .event = event, .callback = tell, .user_arg = one);
  tt_status status = TT_CALL(client->api, Event_OnReady, &args);
  if (status) tt_free(one);
  return status;
}

/* -- Waiting that can be interrupted -- */

/* Shared by who waits and who tells, since either may be the first to leave. */
typedef struct waiting {
  atomic_int refs;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool ready;
  tt_status status;
} waiting;

static void leave(waiting *w) {
  if (atomic_fetch_sub(&w->refs, 1) != 1) return;
  tt_status_release(w->status);
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->changed);
  tt_free(w);
}

static void set_ready(void *user, tt_status status) {
  waiting *w = user;
  pthread_mutex_lock(&w->lock);
  w->ready = true;
  w->status = status;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
  leave(w);
}

static tt_status wait_until_ready(waiting *w) {
  for (;;) {
    pthread_mutex_lock(&w->lock);
    if (!w->ready) tt_interrupt_cond_wait(&w->changed, &w->lock);
    bool ready = w->ready;
    tt_status status = ready ? w->status : TT_SUCCESS;
    if (ready) w->status = TT_SUCCESS;
    pthread_mutex_unlock(&w->lock);
    if (ready) return status;
    TT_TRY(tt_interrupted());
  }
}

tt_status tt_event_wait(tt_client *client, tt_event *event) {
  if (tt_event_ready(client, event)) return tt_event_await(client, event);
  waiting *w = tt_calloc(1, sizeof *w);
  if (!w) return tt_out_of_memory();
  atomic_init(&w->refs, 2);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, NULL);
  tt_status status = tt_event_on_ready(client, event, set_ready, w);
  if (status) {
    tt_status_release(status);
    leave(w);
    status = tt_event_await(client, event);
  } else {
    status = wait_until_ready(w);
  }
  leave(w);
  return status;
}
