#include "dist/internal.h"
#include "stream/meeting.h"

#include <pthread.h>
#include <string.h>

/* All that live; few. Their numbers are never used again. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_dist_group *groups;
static int64_t last_id;

tt_status tt_dist_create(const char *name, int rank, int size, const tt_transport *transport,
                         tt_dist_group **out) {
  tt_dist_group *group = tt_calloc(1, sizeof *group);
  char *copy = tt_strndup(name, strlen(name));
  *out = NULL;
  if (!group || !copy) {
    tt_free(group);
    tt_free(copy);
    transport->release(transport->user);
    return tt_out_of_memory();
  }
  *group = (tt_dist_group){
      .refs = 1, .name = copy, .rank = rank, .size = size, .source = -1, .transport = *transport};
  pthread_mutex_init(&group->launching, NULL);
  pthread_mutex_lock(&lock);
  group->id = ++last_id;
  group->next = groups;
  groups = group;
  pthread_mutex_unlock(&lock);
  *out = group;
  return TT_SUCCESS;
}

void tt_dist_release(tt_dist_group *group) {
  pthread_mutex_lock(&lock);
  bool last = --group->refs == 0;
  pthread_mutex_unlock(&lock);
  if (!last) return;
  group->transport.release(group->transport.user);
  tt_status_release(group->error);
  pthread_mutex_destroy(&group->launching);
  tt_free(group->party.devices);
  tt_free(group->name);
  tt_free(group);
}

void tt_dist_destroy(tt_dist_group *group) {
  if (!group) return;
  pthread_mutex_lock(&lock);
  tt_dist_group **at = &groups;
  while (*at && *at != group) at = &(*at)->next;
  if (*at) *at = group->next;
  pthread_mutex_unlock(&lock);
  tt_dist_release(group);
}

const char *tt_dist_line(uint32_t site) {
  return tt_site_text(site >= TT_FIRST_SITE ? site - TT_FIRST_SITE : 0);
}

void tt_dist_turn(const tt_dist_group *group, int64_t turn[TT_TURN_WORDS]) {
  turn[TT_TURN_GROUP] = group->id;
  turn[TT_TURN_SEQUENCE] = 0;
  turn[TT_TURN_SIZE] = group->size;
  turn[TT_TURN_RANK] = group->rank;
}

tt_status tt_dist_error(tt_dist_group *group) {
  pthread_mutex_lock(&lock);
  tt_status error = tt_status_clone(group->error);
  pthread_mutex_unlock(&lock);
  return error ? error : tt_meeting_error();
}

bool tt_dist_failed(tt_dist_group *group) {
  tt_status error = tt_dist_error(group);
  bool failed = error != TT_SUCCESS;
  tt_status_release(error);
  return failed;
}

int tt_dist_source(tt_dist_group *group) {
  pthread_mutex_lock(&lock);
  int source = group->source;
  pthread_mutex_unlock(&lock);
  return source;
}

void tt_dist_set_party(tt_dist_group *group, const tt_party *party) {
  pthread_mutex_lock(&lock);
  group->party = *party;
  pthread_mutex_unlock(&lock);
}

static bool is_of(const tt_dist_group *group, int64_t party, const int64_t *devices, int count) {
  const tt_party *own = &group->party;
  return own->devices && own->number == party && own->count == count &&
         !memcmp(own->devices, devices, (size_t)count * sizeof *devices);
}

tt_dist_group *tt_dist_of_party(int64_t party, const int64_t *devices, int count) {
  pthread_mutex_lock(&lock);
  tt_dist_group *group = groups;
  while (group && !is_of(group, party, devices, count)) group = group->next;
  if (group) group->refs++;
  pthread_mutex_unlock(&lock);
  return group;
}

/* The lock is held. Takes `error`. */
static void end(tt_dist_group *group, tt_status error) {
  if (group->error) tt_status_release(error);
  else group->error = error;
}

void tt_dist_abort(tt_dist_group *group, const char *why) {
  pthread_mutex_lock(&lock);
  end(group, tt_error(TT_CANCELLED, "process group %s: %s", group->name, why));
  pthread_mutex_unlock(&lock);
}

/* -- Running -- */

/* A program that is run again, since it failed, must not have the ranks do anything twice. */
static tt_status check_turn(const tt_dist_group *group, const int64_t *turn,
                            tt_collective_kind kind) {
  if (group->error) return tt_status_clone(group->error);
  if (group->sequence == turn[TT_TURN_SEQUENCE]) return TT_SUCCESS;
  return tt_error(TT_FAILED_PRECONDITION,
                  "process group %s: %s is number %lld of the group's collectives, but number %lld "
                  "is due; a program that failed cannot be run again",
                  group->name, tt_collective_name(kind), (long long)turn[TT_TURN_SEQUENCE],
                  (long long)group->sequence);
}

/* *out has a reference. */
static tt_status find(const int64_t *turn, tt_collective_kind kind, tt_dist_group **out) {
  pthread_mutex_lock(&lock);
  tt_dist_group *group = groups;
  while (group && group->id != turn[TT_TURN_GROUP]) group = group->next;
  tt_status status = group ? check_turn(group, turn, kind)
                           : tt_error(TT_FAILED_PRECONDITION, "%s: its process group was destroyed",
                                      tt_collective_name(kind));
  if (!status) {
    group->refs++;
    group->sequence++;
  }
  pthread_mutex_unlock(&lock);
  *out = status ? NULL : group;
  return status;
}

static tt_status explain(tt_status status, const tt_dist_group *group, const tt_collective *c) {
  bool reduces = tt_collective_reduces(c->kind);
  return tt_status_prefix(
      status,
      "process group %s, rank %d of %d: collective %lld (%s of %lld %s%s) "
      "failed",
      group->name, group->rank, group->size, (long long)c->sequence, tt_collective_name(c->kind),
      (long long)(c->x_count > c->y_count ? c->x_count : c->y_count),
      reduces ? "elements of " : "bytes", reduces ? tt_dtype_name(c->dtype) : "");
}

tt_status tt_dist_settle(tt_dist_group *group, const tt_collective *c, tt_status status) {
  status = explain(status, group, c);
  pthread_mutex_lock(&lock);
  if (status) end(group, tt_status_clone(status));
  else if (c->kind == TT_COLLECTIVE_RECV) group->source = c->source;
  pthread_mutex_unlock(&lock);
  return status;
}

tt_status tt_dist_run(const int64_t turn[TT_TURN_WORDS], tt_collective *c,
                      int64_t next[TT_TURN_WORDS]) {
  tt_dist_group *group = NULL;
  TT_TRY(find(turn, c->kind, &group));
  c->rank = group->rank;
  c->size = group->size;
  c->sequence = turn[TT_TURN_SEQUENCE];
  c->source = -1;
  int64_t flight = tt_flight_begin(group->name, c);
  tt_status status = group->transport.run(group->transport.user, c);
  tt_flight_end(flight, status != TT_SUCCESS);
  status = tt_dist_settle(group, c, status);
  for (int i = 0; i < TT_TURN_WORDS; i++) next[i] = turn[i];
  next[TT_TURN_SEQUENCE]++;
  tt_dist_release(group);
  return status;
}
