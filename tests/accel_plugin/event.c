#include "internal.h"

#include <stdlib.h>

typedef struct accel_callback {
  PJRT_Event_OnReadyCallback function;
  void *user;
  struct accel_callback *next;
} accel_callback;

accel_moment *accel_moment_create(void) {
  accel_moment *moment = accel_alloc(1, sizeof *moment);
  moment->refs = 1;
  return moment;
}

accel_moment *accel_moment_retain(accel_moment *moment) {
  moment->refs++;
  return moment;
}

void accel_moment_release(accel_moment *moment) {
  if (--moment->refs) return;
  accel_error_free(moment->error);
  free(moment);
}

void accel_moment_end(accel_moment *moment, PJRT_Error *error) {
  accel_lock();
  accel_moment_retain(moment);
  accel_callback *callback = moment->callbacks;
  moment->callbacks = NULL;
  moment->error = error;
  moment->over = true;
  accel_wake();
  accel_unlock();
  for (accel_callback *next; callback; callback = next) {
    next = callback->next;
    callback->function(accel_error_copy(error), callback->user);
    free(callback);
  }
  accel_lock();
  accel_moment_release(moment);
  accel_unlock();
}

PJRT_Event *accel_event_create(accel_moment *moment) {
  PJRT_Event *event = accel_alloc(1, sizeof *event);
  event->moment = accel_moment_retain(moment);
  atomic_fetch_add(&accel_live, 1);
  return event;
}

ACCEL(Event_Destroy) {
  ACCEL_ENTER(Event_Destroy);
  accel_lock();
  accel_moment_release(args->event->moment);
  accel_unlock();
  free(args->event);
  atomic_fetch_sub(&accel_live, 1);
  return NULL;
}

ACCEL(Event_IsReady) {
  ACCEL_ENTER(Event_IsReady);
  accel_lock();
  args->is_ready = args->event->moment->over;
  accel_unlock();
  return NULL;
}

ACCEL(Event_Await) {
  ACCEL_ENTER(Event_Await);
  accel_lock();
  accel_moment *moment = args->event->moment;
  while (!moment->over) accel_sleep(0);
  PJRT_Error *error = accel_error_copy(moment->error);
  accel_unlock();
  return error;
}

ACCEL(Event_OnReady) {
  ACCEL_ENTER(Event_OnReady);
  accel_lock();
  accel_moment *moment = args->event->moment;
  bool over = moment->over;
  PJRT_Error *error = over ? accel_error_copy(moment->error) : NULL;
  if (!over) {
    accel_callback *callback = accel_alloc(1, sizeof *callback);
    *callback = (accel_callback){args->callback, args->user_arg, moment->callbacks};
    moment->callbacks = callback;
  }
  accel_unlock();
  if (over) args->callback(error, args->user_arg);
  return NULL;
}
