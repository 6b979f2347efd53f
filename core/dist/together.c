#include "dist/together.h"

#include "dist/internal.h"
#include "dist/tickets.h"

#include <stdlib.h>
#include <string.h>

/* What the processes tell one another: of each word all get the largest. */
enum { PROGRAM, OPPOSITE, TICKET, WORDS };

tt_status tt_dist_enlist(tt_dist_group *group, int64_t party, const int64_t *devices, int count,
                         int peer) {
  int64_t *own = tt_malloc((size_t)count * sizeof *own);
  if (!own) return tt_out_of_memory();
  memcpy(own, devices, (size_t)count * sizeof *own);
  qsort(own, (size_t)count, sizeof *own, tt_compare_i64);
  tt_dist_set_party(group, &(tt_party){party, own, count, peer});
  return TT_SUCCESS;
}

/* -- Agreeing -- */

static tt_status exchange_all(tt_dist_group *group, const tt_collective *what, int64_t *words) {
  tt_collective c = {.kind = TT_COLLECTIVE_ALL_REDUCE,
                     .op = TT_REDUCE_MAX,
                     .dtype = TT_I64,
                     .rank = group->rank,
                     .size = group->size,
                     .y = words,
                     .y_count = WORDS,
                     .sequence = what->sequence};
  return group->transport.run(group->transport.user, &c);
}

/* Neither of the two waits for the other one to take what it sends. */
static tt_status exchange_with(tt_dist_group *group, const tt_collective *what, int64_t *words) {
  int64_t other[WORDS];
  tt_collective c = {.kind = TT_COLLECTIVE_SEND,
                     .dtype = TT_U8,
                     .rank = -1,
                     .root = group->party.peer,
                     .tag = group->party.number % TT_PARTY_KINDS,
                     .x = words,
                     .x_count = sizeof other,
                     .sequence = what->sequence};
  TT_TRY(group->transport.run(group->transport.user, &c));
  c.kind = TT_COLLECTIVE_RECV;
  c.x = NULL;
  c.x_count = 0;
  c.y = other;
  c.y_count = sizeof other;
  TT_TRY(group->transport.run(group->transport.user, &c));
  for (int i = 0; i < WORDS; i++)
    if (other[i] > words[i]) words[i] = other[i];
  return TT_SUCCESS;
}

static tt_status exchange(tt_dist_group *group, const tt_collective *what, int64_t *words) {
  return group->party.peer < 0 ? exchange_all(group, what, words)
                               : exchange_with(group, what, words);
}

static tt_status differ(tt_dist_group *group, const tt_collective *what) {
  return group->transport.explain(group->transport.user, what,
                                  "another rank launches another program");
}

/* Waits for all of them. */
static tt_status meet(tt_dist_group *group, const tt_collective *what, uint64_t program) {
  int64_t own = (int64_t)(program >> 1), words[WORDS] = {own, -own, 0};
  TT_TRY(exchange(group, what, words));
  return words[PROGRAM] == -words[OPPOSITE] ? TT_SUCCESS : differ(group, what);
}

static tt_status launch_in_turn(tt_dist_group *group, const tt_collective *what,
                                tt_status (*run)(void *user), void *user) {
  tt_ticket ticket;
  const tt_party *party = &group->party;
  uint64_t launch = tt_hash_bytes(party->devices, (size_t)party->count * sizeof *party->devices,
                                  (uint64_t)party->number);
  tt_ticket_propose(&ticket, (uint32_t)launch);
  int64_t words[WORDS] = {[TICKET] = (int64_t)ticket.number};
  tt_status status = exchange(group, what, words);
  if (!status) {
    tt_ticket_await(&ticket, (uint64_t)words[TICKET]);
    status = run(user);
  }
  tt_ticket_leave(&ticket);
  return status;
}

/* -- A launch -- */

static tt_collective describe(const tt_dist_group *group, const tt_joint *joint, uint32_t site) {
  return (tt_collective){.kind = joint->kind,
                         .op = joint->op,
                         .dtype = joint->dtype,
                         .rank = group->rank,
                         .size = group->size,
                         .root = group->party.peer,
                         .x_count = joint->x_count,
                         .y_count = joint->y_count,
                         .sequence = group->sequence,
                         .site = TT_FIRST_SITE + site};
}

/* One at a time for a group. */
static tt_status launch(tt_dist_group *group, const tt_module *module, uint32_t site,
                        tt_status (*run)(void *user), void *user) {
  tt_collective what = describe(group, &module->joint, site);
  TT_TRY(tt_dist_error(group));
  uint64_t program = tt_hash_bytes(module->text.data, module->text.size, 0);
  int64_t flight = tt_flight_begin(group->name, &what);
  tt_status status = meet(group, &what, program);
  if (!status) status = launch_in_turn(group, &what, run, user);
  tt_flight_end(flight, status != TT_SUCCESS);
  group->sequence++;
  return tt_dist_settle(group, &what, status);
}

tt_status tt_dist_launch(const tt_program *program, uint32_t site, tt_status (*run)(void *user),
                         void *user) {
  const tt_joint *joint = &program->module.joint;
  tt_dist_group *group = tt_dist_of_party(joint->party, joint->devices, joint->device_count);
  if (!group)
    return tt_error(TT_FAILED_PRECONDITION, "%s: its process group was destroyed",
                    program->module.name);
  pthread_mutex_lock(&group->launching);
  tt_status status = launch(group, &program->module, site, run, user);
  pthread_mutex_unlock(&group->launching);
  tt_dist_release(group);
  return status;
}
