#include "internal.h"

#include <stdlib.h>

typedef struct accel_node {
  accel_task *task;
  int64_t due; /* 0: not known yet */
  bool arrived;
  struct accel_node *next;
} accel_node;

static bool held; /* under the lock */

void tt_accel_hold(bool on) {
  accel_lock();
  held = on;
  accel_wake();
  accel_unlock();
}

/* The head, once it is ready, has taken its time, and was reached by all lanes that it occupies;
 * the last of them runs it, and the others stay until it is over. */
static accel_task *next_in_turn(accel_lane *lane, int64_t *wake) {
  accel_node *node = lane->first;
  if (!node) return NULL;
  accel_task *task = node->task;
  if (!node->arrived) {
    if (!task->ready(task)) return NULL;
    int64_t now = accel_now();
    if (!node->due) node->due = now + task->delay;
    if (node->due > now) {
      *wake = node->due;
      return NULL;
    }
    node->arrived = true;
    task->arrived++;
  }
  return task->arrived < task->members || task->taken ? NULL : task;
}

/* The one that is due first of those that are ready. */
static accel_task *next_in_time(accel_lane *lane, int64_t *wake) {
  accel_node *first = NULL;
  for (accel_node *node = lane->first; node; node = node->next) {
    if (node->task->taken || (first && first->due <= node->due)) continue;
    if (node->task->ready(node->task)) first = node;
  }
  if (!first) return NULL;
  if (first->due <= accel_now()) return first->task;
  *wake = first->due;
  return NULL;
}

static void remove_over(accel_lane *lane) {
  for (accel_node **at = &lane->first; *at;) {
    accel_node *node = *at;
    if (!node->task->over) {
      at = &node->next;
      continue;
    }
    *at = node->next;
    if (!node->next) lane->last = at;
    if (--node->task->nodes == 0) free(node->task);
    free(node);
  }
}

static void *work(void *user) {
  accel_lane *lane = user;
  accel_lock();
  for (;;) {
    int64_t wake = 0;
    remove_over(lane);
    if (lane->stop && !lane->first) break;
    accel_task *task = held && !lane->stop ? NULL
                       : lane->ordered     ? next_in_turn(lane, &wake)
                                           : next_in_time(lane, &wake);
    if (!task) {
      accel_sleep(wake);
      continue;
    }
    task->taken = true;
    accel_unlock();
    task->run(task);
    accel_lock();
    task->over = true;
    accel_wake();
  }
  accel_unlock();
  return NULL;
}

PJRT_Error *accel_lane_init(accel_lane *lane, bool ordered) {
  *lane = (accel_lane){.ordered = ordered};
  lane->last = &lane->first;
  lane->started = pthread_create(&lane->thread, NULL, work, lane) == 0;
  return lane->started ? NULL : accel_error(TT_RESOURCE_EXHAUSTED, "no thread could be started");
}

void accel_lane_deinit(accel_lane *lane) {
  if (!lane->started) return;
  accel_lock();
  lane->stop = true;
  accel_wake();
  accel_unlock();
  (void)pthread_join(lane->thread, NULL);
  lane->started = false;
}

void accel_lane_add(accel_lane *const *lanes, int members, accel_task *task) {
  task->members = task->nodes = members;
  for (int i = 0; i < members; i++) {
    accel_node *node = accel_alloc(1, sizeof *node);
    node->task = task;
    if (!lanes[i]->ordered) node->due = accel_now() + task->delay;
    *lanes[i]->last = node;
    lanes[i]->last = &node->next;
  }
  accel_wake();
}
