/* Launches of several processes: each process of a launch makes it, and any two of them make those
 * that they have in common in one order. Processes are forked, groups are threads of theirs. */
#include "dist/tickets.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROCESSES = 4, GROUPS = 6, LAUNCHES = 200 };

/* Where the processes of a group meet. */
typedef struct place {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int members, arrived;
  uint64_t round, most, agreed;
} place;

static struct {
  place places[GROUPS];
  bool is_in[GROUPS][PROCESSES];
  int made[PROCESSES];
  int log[PROCESSES][GROUPS * LAUNCHES]; /* groups, in the order of their launches */
} *all;

static unsigned seed;
static int self;

static void open_place(place *p) {
  pthread_mutexattr_t shared;
  pthread_condattr_t shared_too;
  pthread_mutexattr_init(&shared);
  pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&p->lock, &shared);
  pthread_condattr_init(&shared_too);
  pthread_condattr_setpshared(&shared_too, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&p->changed, &shared_too);
}

/* The largest of what the members say. */
static uint64_t agree(place *p, uint64_t own) {
  pthread_mutex_lock(&p->lock);
  uint64_t round = p->round;
  if (own > p->most) p->most = own;
  if (++p->arrived == p->members) {
    p->agreed = p->most;
    p->arrived = 0;
    p->most = 0;
    p->round++;
    pthread_cond_broadcast(&p->changed);
  }
  while (p->round == round) pthread_cond_wait(&p->changed, &p->lock);
  uint64_t agreed = p->agreed;
  pthread_mutex_unlock(&p->lock);
  return agreed;
}

/* A group's launches in this process; before some of them it is late. */
static void *launch_all(void *user) {
  int group = (int)(intptr_t)user;
  unsigned dice = seed + (unsigned)(group * PROCESSES + self);
  for (int i = 0; i < LAUNCHES; i++) {
    tt_ticket ticket;
    if (rand_r(&dice) % 8 == 0) tt_sleep_ms(1);
    agree(&all->places[group], 0);
    tt_ticket_propose(&ticket, (uint32_t)group);
    tt_ticket_await(&ticket, agree(&all->places[group], ticket.number));
    all->log[self][all->made[self]++] = group;
    tt_ticket_leave(&ticket);
  }
  return NULL;
}

static void be_process(void) {
  pthread_t threads[GROUPS];
  for (int g = 0; g < GROUPS; g++)
    if (all->is_in[g][self]) pthread_create(&threads[g], NULL, launch_all, (void *)(intptr_t)g);
  for (int g = 0; g < GROUPS; g++)
    if (all->is_in[g][self]) pthread_join(threads[g], NULL);
  _exit(0);
}

static void choose_members(void) {
  unsigned dice = seed;
  for (int g = 0; g < GROUPS; g++) {
    open_place(&all->places[g]);
    while (all->places[g].members < 2)
      for (int p = 0; p < PROCESSES; p++)
        if (!all->is_in[g][p] && rand_r(&dice) % 2) {
          all->is_in[g][p] = true;
          all->places[g].members++;
        }
  }
}

/* The next launch of p's that q takes part in, too; -1: there is none. */
static int next_common(int p, int q, int *at) {
  while (*at < all->made[p]) {
    int group = all->log[p][(*at)++];
    if (all->is_in[group][q]) return group;
  }
  return -1;
}

static void check_pair(int p, int q) {
  int in_p = 0, in_q = 0, common;
  do {
    common = next_common(p, q, &in_p);
    assert_int_equal(common, next_common(q, p, &in_q));
  } while (common >= 0);
}

static void run_with(unsigned with) {
  seed = with;
  all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(all, MAP_FAILED);
  choose_members();
  for (self = 0; self < PROCESSES; self++)
    if (fork() == 0) be_process();
  for (int p = 0; p < PROCESSES; p++) {
    int status = 1;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  for (int p = 0; p < PROCESSES; p++) {
    int groups = 0;
    for (int g = 0; g < GROUPS; g++) groups += all->is_in[g][p];
    assert_int_equal(all->made[p], groups * LAUNCHES);
    for (int q = 0; q < p; q++) check_pair(p, q);
  }
  munmap(all, sizeof *all);
}

static void test_one_order(void **state) {
  (void)state;
  for (unsigned with = 1; with <= 5; with++) {
    printf("seed %u\n", with);
    run_with(with);
  }
}

int main(void) {
  alarm(300); /* what waits for one another would do so for ever */
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
