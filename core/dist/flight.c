#include "dist/flight.h"

#include "dist/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_flight ring[TT_FLIGHT_KEPT];
static int64_t count;

static int64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool kept(int64_t number) {
  return number >= 0 && number < count && count - number <= TT_FLIGHT_KEPT;
}

int64_t tt_flight_begin(const char *group, const tt_collective *c) {
  tt_flight flight = {.kind = c->kind,
                      .op = c->op,
                      .dtype = c->dtype,
                      .rank = c->rank,
                      .size = c->size,
                      .root = c->root,
                      .sequence = c->sequence,
                      .x_count = c->x_count,
                      .y_count = c->y_count,
                      .started_ns = now_ns(),
                      .site = c->site};
  snprintf(flight.group, sizeof flight.group, "%s", group);
  pthread_mutex_lock(&lock);
  int64_t number = count++;
  ring[number % TT_FLIGHT_KEPT] = flight;
  pthread_mutex_unlock(&lock);
  return number;
}

void tt_flight_end(int64_t number, bool failed) {
  pthread_mutex_lock(&lock);
  if (kept(number)) {
    tt_flight *flight = &ring[number % TT_FLIGHT_KEPT];
    flight->state = failed ? TT_FLIGHT_FAILED : TT_FLIGHT_COMPLETED;
    flight->ended_ns = now_ns();
  }
  pthread_mutex_unlock(&lock);
}

int64_t tt_flight_count(void) {
  pthread_mutex_lock(&lock);
  int64_t all = count;
  pthread_mutex_unlock(&lock);
  return all;
}

bool tt_flight_get(int64_t number, tt_flight *out) {
  pthread_mutex_lock(&lock);
  bool found = kept(number);
  if (found) *out = ring[number % TT_FLIGHT_KEPT];
  pthread_mutex_unlock(&lock);
  return found;
}
