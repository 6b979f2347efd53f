/* A group's launches, on a transport that plays its other ranks. */
#include "dist/flight.h"
#include "dist/together.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "checks.h"

enum { NUMBER = 3 };

/* What the others do. */
static struct {
  int64_t ahead;        /* how much larger their words are */
  int rounds, fails_at; /* the exchange that fails, from 1; 0: none */
  int64_t to, tag;      /* of the last message */
  char told[sizeof(int64_t) * 8];
  size_t told_size;
} others;

static tt_status carry(void *user, tt_collective *c) {
  (void)user;
  if (c->kind != TT_COLLECTIVE_RECV && ++others.rounds == others.fails_at)
    return tt_error(TT_UNAVAILABLE, "nobody came");
  others.to = c->root;
  others.tag = c->tag;
  if (c->kind == TT_COLLECTIVE_SEND) {
    others.told_size = (size_t)c->x_count;
    memcpy(others.told, c->x, others.told_size);
    return TT_SUCCESS;
  }
  if (c->kind == TT_COLLECTIVE_RECV) {
    assert_int_equal(c->y_count, others.told_size);
    memcpy(c->y, others.told, others.told_size);
  }
  *(int64_t *)c->y += others.ahead;
  return TT_SUCCESS;
}

static tt_status explain(void *user, const tt_collective *c, const char *what) {
  (void)user;
  return tt_error(TT_UNAVAILABLE, "%s, it was said of number %lld", what, (long long)c->sequence);
}

static void let_go(void *user) { (void)user; }

static tt_dist_group *open_group(int64_t party, int peer) {
  static const tt_transport transport = {NULL, carry, explain, let_go};
  tt_dist_group *group = NULL;
  memset(&others, 0, sizeof others);
  ok(tt_dist_create("test", 0, 2, &transport, &group));
  ok(tt_dist_enlist(group, party, (int64_t[]){4, 9}, 2, peer));
  return group;
}

/* A program that a plugin need not have. */
static tt_program program_of(int64_t party) {
  static int64_t devices[] = {4, 9};
  tt_program program = {.module = {.name = "sum",
                                   .joint = {.device_count = 2,
                                             .devices = devices,
                                             .party = party,
                                             .kind = TT_COLLECTIVE_ALL_REDUCE,
                                             .dtype = TT_F32,
                                             .y_count = 12}}};
  program.module.text = (tt_text){.data = "a text", .size = 6};
  return program;
}

static int launched;

static tt_status run(void *user) {
  launched++;
  return user ? tt_error(TT_INTERNAL, "%s", (const char *)user) : TT_SUCCESS;
}

static tt_status launch(int64_t party, const char *error) {
  tt_program program = program_of(party);
  launched = 0;
  return tt_dist_launch(&program, 0, run, (void *)error);
}

static void test_launches(void **state) {
  (void)state;
  tt_dist_group *group = open_group(NUMBER, -1);
  int64_t before = tt_flight_count();
  tt_flight flight;
  for (int i = 0; i < 2; i++) ok(launch(NUMBER, NULL));
  assert_int_equal(launched, 1);
  assert_int_equal(others.rounds, 4); /* to meet, and for a ticket */
  assert_int_equal(tt_flight_count(), before + 2);
  assert_true(tt_flight_get(before + 1, &flight));
  assert_int_equal(flight.kind, TT_COLLECTIVE_ALL_REDUCE);
  assert_int_equal(flight.y_count, 12);
  assert_int_equal(flight.sequence, 1);
  assert_int_equal(flight.state, TT_FLIGHT_COMPLETED);
  tt_dist_destroy(group);
}

/* By its number and its devices. */
static void test_whose_it_is(void **state) {
  (void)state;
  tt_dist_group *group = open_group(NUMBER, -1);
  fails(launch(NUMBER + 1, NULL), TT_FAILED_PRECONDITION, "sum: its process group was destroyed");
  tt_program program = program_of(NUMBER);
  program.module.joint.devices = (int64_t[]){4, 8};
  fails(tt_dist_launch(&program, 0, run, NULL), TT_FAILED_PRECONDITION, "destroyed");
  tt_dist_destroy(group);
  fails(launch(NUMBER, NULL), TT_FAILED_PRECONDITION, "destroyed");
  assert_int_equal(launched, 0);
}

static void test_messages(void **state) {
  (void)state;
  int64_t party = NUMBER * TT_PARTY_KINDS + TT_PARTY_DOWN;
  tt_dist_group *group = open_group(party, 7);
  ok(launch(party, NULL));
  assert_int_equal(launched, 1);
  assert_int_equal(others.to, 7);
  assert_int_equal(others.tag, TT_PARTY_DOWN);
  others.ahead = 1;
  fails(launch(party, NULL), TT_UNAVAILABLE, "another rank launches another program");
  tt_dist_destroy(group);
}

/* Whatever goes wrong ends the group, before anything else is launched. */
static void test_errors(void **state) {
  (void)state;
  static const struct {
    int fails_at;
    int64_t ahead;
    const char *error, *words;
  } cases[] = {{1, 0, NULL, "(all_reduce of 12 elements of f32) failed: nobody came"},
               {2, 0, NULL, "nobody came"},
               {0, 1, NULL, "another program, it was said of number 0"},
               {0, 0, "no memory", "rank 0 of 2: collective 0"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tt_dist_group *group = open_group(NUMBER, -1);
    others.fails_at = cases[i].fails_at;
    others.ahead = cases[i].ahead;
    tt_code code = cases[i].error ? TT_INTERNAL : TT_UNAVAILABLE;
    fails(launch(NUMBER, cases[i].error), code, cases[i].words);
    assert_int_equal(launched, cases[i].error != NULL);
    assert_true(tt_dist_failed(group));
    fails(launch(NUMBER, NULL), code, cases[i].words);
    assert_int_equal(launched, 0);
    tt_dist_destroy(group);
  }
}

static void test_memory_runs_out(void **state) {
  (void)state;
  static const tt_transport transport = {NULL, carry, explain, let_go};
  tt_dist_group *group = NULL;
  ok(tt_dist_create("test", 0, 2, &transport, &group));
  tt_alloc_fail_at(1, false);
  fails(tt_dist_enlist(group, NUMBER, (int64_t[]){4, 9}, 2, -1), TT_RESOURCE_EXHAUSTED, "memory");
  tt_alloc_fail_at(0, false);
  fails(launch(NUMBER, NULL), TT_FAILED_PRECONDITION, "destroyed");
  tt_dist_destroy(group);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_launches),        cmocka_unit_test(test_whose_it_is),
      cmocka_unit_test(test_messages),        cmocka_unit_test(test_errors),
      cmocka_unit_test(test_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
