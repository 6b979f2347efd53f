#include "stream/meeting.h"

#include <errno.h>
#include <pthread.h>

enum { TT_MEETING_DEVICES = 1024 };

/* One launch by all devices. It lives on until the last of them has left. */
typedef struct round {
  tt_program *program;
  int size, arrived, users;
  bool done;
  tt_status status;
  tt_pjrt_device **devices;
  tt_seat **seats; /* NULL: it has not come */
  struct round *next;
} round;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static round *open_rounds; /* somebody is missing; the oldest first */
static tt_status over;     /* why nobody meets any more */
static int64_t timeout_ms = 10 * INT64_C(60) * 1000;
static TT_ATOMIC(tt_launch_together) with_others;

void tt_meeting_set_others(tt_launch_together launch) { with_others = launch; }

static void init_condition(void) { tt_cond_init(&changed); }

/* The lock is held. Takes the error. */
static void end(tt_status why) {
  if (over) tt_status_release(why);
  else over = why;
  pthread_cond_broadcast(&changed);
}

void tt_meeting_end(const char *why) {
  pthread_once(&once, init_condition);
  pthread_mutex_lock(&lock);
  end(tt_error(TT_CANCELLED, "%s", why));
  pthread_mutex_unlock(&lock);
}

tt_status tt_meeting_error(void) {
  pthread_mutex_lock(&lock);
  tt_status status = tt_status_clone(over);
  pthread_mutex_unlock(&lock);
  return status;
}

void tt_meeting_reopen(int64_t timeout) {
  pthread_mutex_lock(&lock);
  timeout_ms = timeout;
  tt_status_release(over);
  over = TT_SUCCESS;
  pthread_mutex_unlock(&lock);
}

/* -- Rounds; the lock is held -- */

static void unlist(round *gone) {
  round **at = &open_rounds;
  while (*at && *at != gone) at = &(*at)->next;
  if (*at) *at = gone->next;
}

static void leave(round *r) {
  if (--r->users) return;
  unlist(r);
  tt_status_release(r->status);
  tt_free(r->devices);
  tt_free(r->seats);
  tt_free(r);
}

static tt_status open_round(tt_program *program, round **out) {
  int size = 0;
  *out = NULL;
  TT_TRY(tt_executable_devices(program->executable, NULL, 0, &size));
  if (size < 1 || size > TT_MEETING_DEVICES)
    return tt_error(TT_FAILED_PRECONDITION, "the program runs on %d devices of this process", size);
  round *r = tt_calloc(1, sizeof *r);
  tt_pjrt_device **devices = tt_calloc((size_t)size, sizeof(tt_pjrt_device *));
  tt_seat **seats = tt_calloc((size_t)size, sizeof(tt_seat *));
  tt_status status = r && devices && seats
                         ? tt_executable_devices(program->executable, devices, size, &size)
                         : tt_out_of_memory();
  if (status) {
    tt_free(r);
    tt_free(devices);
    tt_free(seats);
    return status;
  }
  *r = (round){.program = program, .size = size, .devices = devices, .seats = seats};
  round **at = &open_rounds;
  while (*at) at = &(*at)->next;
  *out = *at = r;
  return TT_SUCCESS;
}

static int place_of(const round *r, const tt_pjrt_device *device) {
  for (int i = 0; i < r->size; i++)
    if (r->devices[i] == device) return i;
  return -1;
}

/* The oldest round of the program that this device has not come to. */
static tt_status take_seat(tt_program *program, tt_seat *seat, round **out) {
  round *r = open_rounds;
  int place = -1;
  for (; r; r = r->next)
    if (r->program == program && (place = place_of(r, seat->device)) >= 0 && !r->seats[place])
      break;
  *out = NULL;
  if (!r) TT_TRY(open_round(program, &r));
  if (place < 0) place = place_of(r, seat->device);
  r->users++;
  if (place < 0) {
    leave(r);
    return tt_error(TT_FAILED_PRECONDITION, "device %s is none of those that the program runs on",
                    tt_pjrt_device_string(seat->device));
  }
  r->seats[place] = seat;
  r->arrived++;
  *out = r;
  return TT_SUCCESS;
}

static tt_status name_missing(const round *r, int64_t timeout) {
  tt_text text = TT_TEXT_INIT;
  for (int i = 0; i < r->size; i++)
    if (!r->seats[i])
      tt_text_printf(&text, "%s%d", text.size ? ", " : "", tt_pjrt_device_id(r->devices[i]));
  tt_status status =
      text.failed ? tt_out_of_memory()
                  : tt_error(TT_UNAVAILABLE,
                             "%s: %d of %d devices came to run it; these did not within %g s: %s",
                             r->program->module.name, r->arrived, r->size, (double)timeout / 1000,
                             text.data);
  tt_text_deinit(&text);
  return status;
}

/* -- Running it -- */

/* What one device keeps, all do. */
static tt_status gather_keep(const round *r, int64_t **keep, int *count) {
  size_t most = 1;
  for (int d = 0; d < r->size; d++) most += (size_t)r->seats[d]->keep_count;
  *count = 0;
  *keep = tt_malloc(sizeof **keep * most);
  if (!*keep) return tt_out_of_memory();
  for (int d = 0; d < r->size; d++)
    for (int i = 0; i < r->seats[d]->keep_count; i++) {
      int known = 0;
      while (known < *count && (*keep)[known] != r->seats[d]->keep[i]) known++;
      if (known == *count) (*keep)[(*count)++] = r->seats[d]->keep[i];
    }
  return TT_SUCCESS;
}

/* Nobody touches the round meanwhile. */
static tt_status run(void *user) {
  const round *r = user;
  size_t size = (size_t)r->size;
  tt_buffer *const **arguments = tt_malloc(sizeof *arguments * size);
  tt_buffer ***outputs = tt_malloc(sizeof *outputs * size);
  tt_event **ends = tt_calloc(size, sizeof(tt_event *));
  int64_t *keep = NULL;
  int keep_count = 0;
  tt_status status =
      arguments && outputs && ends ? gather_keep(r, &keep, &keep_count) : tt_out_of_memory();
  for (size_t d = 0; !status && d < size; d++) {
    arguments[d] = r->seats[d]->arguments;
    outputs[d] = r->seats[d]->outputs;
  }
  if (!status)
    status = tt_execute_all(r->program->executable, r->size, arguments, r->seats[0]->count, keep,
                            keep_count, outputs, ends);
  for (size_t d = 0; !status && d < size; d++) r->seats[d]->end = ends[d];
  tt_free(arguments);
  tt_free(outputs);
  tt_free(ends);
  tt_free(keep);
  return status;
}

static bool is_local(const round *r) { return r->size == r->program->module.joint.device_count; }

static tt_status launch(round *r, uint32_t site) {
  tt_launch_together together = with_others;
  if (is_local(r)) return run(r);
  if (together) return together(r->program, site, run, r);
  return tt_error(TT_FAILED_PRECONDITION, "%s: it runs on devices of other processes, too",
                  r->program->module.name);
}

static void await(round *r) {
  int64_t timeout = timeout_ms;
  struct timespec until = tt_deadline(timeout);
  while (!r->done && (r->arrived == r->size || !over)) {
    bool late = pthread_cond_timedwait(&changed, &lock, &until) == ETIMEDOUT;
    if (late && !r->done && r->arrived < r->size) end(name_missing(r, timeout));
  }
}

static tt_status meet(tt_program *program, tt_seat *seat) {
  round *r = NULL;
  if (over) return tt_status_clone(over);
  TT_TRY(take_seat(program, seat, &r));
  if (r->arrived == r->size) {
    unlist(r);
    pthread_mutex_unlock(&lock);
    tt_status status = launch(r, seat->site);
    pthread_mutex_lock(&lock);
    r->status = status;
    r->done = true;
    if (status && is_local(r)) end(tt_status_clone(status));
    pthread_cond_broadcast(&changed);
  } else {
    await(r);
  }
  tt_status status = tt_status_clone(r->done ? r->status : over);
  leave(r);
  return status;
}

tt_status tt_meeting_execute(tt_program *program, tt_seat *seat) {
  pthread_once(&once, init_condition);
  seat->end = NULL;
  pthread_mutex_lock(&lock);
  tt_status status = meet(program, seat);
  pthread_mutex_unlock(&lock);
  return status;
}
