/* What ranks tell one another beside their collectives: on a board in memory, where each rank's
 * members are a thread's, or are played by the test. */
#include "dist/failure.h"
#include "dist/mail.h"
#include "dist/notices.h"
#include "stream/meeting.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checks.h"

/* -- A board; it takes no memory of the core's, which may be made to fail -- */

enum { NOTES = 64, LONGEST = 4096 };
static struct {
  pthread_mutex_t lock;
  char keys[NOTES][64], texts[NOTES][LONGEST];
  int ways; /* that were opened and not released */
  bool broken;
} board = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int place_of(const char *key) {
  for (int i = 0; i < NOTES; i++)
    if (!strcmp(board.keys[i], key)) return i;
  return -1;
}

static tt_status put(void *user, const char *key, const void *data, size_t size) {
  (void)user;
  pthread_mutex_lock(&board.lock);
  int place = place_of(key);
  if (place < 0) place = place_of("");
  if (place >= 0) {
    snprintf(board.keys[place], sizeof board.keys[0], "%s", key);
    snprintf(board.texts[place], LONGEST, "%.*s", (int)size, size ? (const char *)data : "");
  }
  pthread_mutex_unlock(&board.lock);
  return place < 0 ? tt_error(TT_INTERNAL, "the board is full") : TT_SUCCESS;
}

static tt_status say(const char *key, const char *text) {
  return put(NULL, key, text, strlen(text));
}

static tt_status get(void *user, const char *key, tt_text *out, bool *found) {
  (void)user;
  if (board.broken) return tt_error(TT_UNAVAILABLE, "nobody is there");
  pthread_mutex_lock(&board.lock);
  int place = place_of(key);
  *found = place >= 0;
  if (*found) tt_text_add(out, board.texts[place], strlen(board.texts[place]));
  pthread_mutex_unlock(&board.lock);
  return TT_SUCCESS;
}

static tt_status take_off(void *user, const char *key) {
  (void)user;
  pthread_mutex_lock(&board.lock);
  int place = place_of(key);
  if (place >= 0) *board.keys[place] = 0;
  pthread_mutex_unlock(&board.lock);
  return TT_SUCCESS;
}

static tt_status again(void *user, tt_board *out);

static void let_go(void *user) {
  (void)user;
  pthread_mutex_lock(&board.lock);
  board.ways--;
  pthread_mutex_unlock(&board.lock);
}

static tt_board open_board(void) {
  pthread_mutex_lock(&board.lock);
  board.ways++;
  pthread_mutex_unlock(&board.lock);
  return (tt_board){NULL, put, get, take_off, again, let_go};
}

static tt_status again(void *user, tt_board *out) {
  (void)user;
  if (board.broken) return tt_error(TT_UNAVAILABLE, "nobody is there");
  *out = open_board();
  return TT_SUCCESS;
}

static int wipe(void **state) {
  (void)state;
  assert_int_equal(board.ways, 0);
  memset(board.keys, 0, sizeof board.keys);
  board.broken = false;
  return 0;
}

/* Rank `rank` of two, which are ranks 4 and 6 of the program. */
static tt_members *join(const char *name, int rank) {
  tt_board own = open_board();
  tt_members *members = NULL;
  ok(tt_members_create(name, rank, 2, (int64_t[]){4, 6}, &own, &members));
  tt_members_set_timeout(members, 5000);
  return members;
}

/* -- Issues -- */

static const int64_t kTen[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

static const char *words(tt_collective c, const char *unit) {
  static char text[128];
  tt_arena arena = TT_ARENA_INIT;
  tt_issue issue;
  ok(tt_issue_of(&arena, &c, unit, kTen, &issue));
  snprintf(text, sizeof text, "%s", issue.what);
  tt_arena_deinit(&arena);
  return text;
}

static void test_words(void **state) {
  (void)state;
  tt_collective c = {.kind = TT_COLLECTIVE_ALL_REDUCE, .size = 2, .y_count = 3, .root = 1};
  assert_string_equal(words(c, "f32"), "all_reduce (SUM) of 3 f32");
  c.op = TT_REDUCE_PREMUL_SUM;
  c.kind = TT_COLLECTIVE_REDUCE;
  assert_string_equal(words(c, "f32"), "reduce (PREMUL_SUM) of 3 f32 to rank 11");
  c.kind = TT_COLLECTIVE_SCATTER;
  assert_string_equal(words(c, "bytes"), "scatter of 3 bytes from rank 11");
  c.kind = TT_COLLECTIVE_ALL_TO_ALL;
  assert_string_equal(words(c, "i8"), "all_to_all of i8");
  c.kind = TT_COLLECTIVE_BARRIER;
  assert_string_equal(words(c, "f32"), "barrier");
  c = (tt_collective){.kind = TT_COLLECTIVE_GATHER, .size = 2, .root = 7, .x_count = 5};
  assert_string_equal(words(c, "i8"), "gather of 5 i8 to rank 7");
}

static void part(const tt_issues *ranks, int count, const char *expected) {
  tt_text text = TT_TEXT_INIT;
  tt_issues_part(ranks, count, &text);
  ok(tt_text_status(&text));
  assert_string_equal(text.data ? text.data : "", expected);
  tt_text_deinit(&text);
}

static void test_where_ranks_part(void **state) {
  (void)state;
  tt_issue a[] = {{0, "x", "f.py:1", NULL, NULL, 0}, {1, "y", "f.py:2", NULL, NULL, 0}};
  tt_issue b[] = {{1, "z", "", NULL, NULL, 0}, {2, "w", "", NULL, NULL, 0}};
  tt_issues two[] = {{4, a, 2}, {6, b, 2}};
  part(two, 0, "");
  part(two, 1, "");
  part(two, 2, "collective 1: rank 4: y at f.py:2; rank 6: z");
  tt_issues apart[] = {{4, a, 2}, {6, b + 1, 1}}; /* none that both of them tell of */
  part(apart, 2, "");
  tt_issues ten[10];
  for (int i = 0; i < 10; i++) ten[i] = (tt_issues){kTen[i], i ? a + 1 : b, 1};
  part(ten, 10,
       "collective 1: rank 10: z; ranks 11, 12, 13, 14, 15, 16, 17, 18 and 1 more: y at f.py:2");
}

static void test_where_splits_part(void **state) {
  (void)state;
  int64_t one[] = {1, 2, 1, 5}, other[] = {5, 1, 3, 1};
  tt_issue a = {0, "all_to_all of f32", "f.py:1", one, one + 2, 2};
  tt_issue b = {0, "all_to_all of f32", "f.py:2", other, other + 2, 2};
  tt_issues two[] = {{4, &a, 1}, {6, &b, 1}};
  part(two, 2,
       "collective 0: rank 4: all_to_all of f32 sends 2 elements to rank 6 at f.py:1; rank 6 takes "
       "3 from it at f.py:2");
  other[2] = 2;
  part(two, 2, "");
  b.split_count = 0;
  part(two, 2, "");
}

static void test_issues_as_a_text(void **state) {
  (void)state;
  int64_t splits[] = {1, -2, 3, 4};
  tt_issue all[] = {{3, "a of 2 f32", "f.py:1 in g", splits, splits + 2, 2},
                    {4, "barrier", "", NULL, NULL, 0}};
  tt_issues before = {4, all, 2}, after = {6, NULL, 0};
  tt_arena arena = TT_ARENA_INIT;
  tt_text text = TT_TEXT_INIT;
  tt_issues_pack(&before, &text);
  ok(tt_text_status(&text));
  ok(tt_issues_unpack(&arena, text.data, &after));
  tt_text_deinit(&text);
  assert_int_equal(after.rank, 6);
  assert_int_equal(after.count, 2);
  assert_int_equal(after.all[0].sequence, 3);
  assert_string_equal(after.all[0].what, "a of 2 f32");
  assert_string_equal(after.all[0].line, "f.py:1 in g");
  assert_int_equal(after.all[0].split_count, 2);
  assert_memory_equal(after.all[0].x_splits, splits, 2 * sizeof *splits);
  assert_memory_equal(after.all[0].y_splits, splits + 2, 2 * sizeof *splits);
  assert_string_equal(after.all[1].what, "barrier");
  assert_string_equal(after.all[1].line, "");
  assert_int_equal(after.all[1].split_count, 0);
  ok(tt_issues_unpack(&arena, "", &after));
  assert_int_equal(after.count, 0);
  ok(tt_issues_unpack(&arena, "5\n6\x1fx", &after)); /* what others wrote may be anything */
  assert_int_equal(after.count, 1);
  assert_string_equal(after.all[0].what, "");
  tt_arena_deinit(&arena);
}

/* -- A group whose collectives do nothing, for the flight record -- */

static tt_status nothing(void *user, tt_collective *c) {
  (void)user;
  (void)c;
  return TT_SUCCESS;
}

static void no_user(void *user) { (void)user; }

static tt_dist_group *begin(const char *name, int64_t turn[TT_TURN_WORDS]) {
  static const tt_transport transport = {NULL, nothing, NULL, no_user};
  tt_dist_group *group = NULL;
  ok(tt_dist_create(name, 0, 2, &transport, &group));
  tt_dist_turn(group, turn);
  return group;
}

static void run(int64_t *turn, tt_collective_kind kind) {
  uint32_t site = tt_site_add("train.py", 12, "step") + TT_FIRST_SITE;
  float x[2] = {1, 2};
  tt_collective c = {.kind = kind, .dtype = TT_F32, .y = x, .y_count = 2, .site = site};
  ok(tt_dist_run(turn, &c, turn));
}

static void test_what_was_recorded(void **state) {
  (void)state;
  int64_t turn[TT_TURN_WORDS];
  tt_issues issues;
  tt_arena arena = TT_ARENA_INIT;
  tt_dist_group *group = begin("recorded", turn);
  run(turn, TT_COLLECTIVE_BROADCAST); /* of an earlier group of this name */
  tt_dist_destroy(group);
  group = begin("recorded", turn);
  run(turn, TT_COLLECTIVE_BARRIER);
  run(turn, TT_COLLECTIVE_SEND);
  run(turn, TT_COLLECTIVE_ALL_REDUCE);
  ok(tt_issues_recorded(&arena, "recorded", (int64_t[]){4, 6}, 2, &issues));
  assert_int_equal(issues.count, 2);
  assert_int_equal(issues.all[0].sequence, 0);
  assert_string_equal(issues.all[0].what, "barrier");
  assert_int_equal(issues.all[1].sequence, 2);
  assert_string_equal(issues.all[1].what, "all_reduce (SUM) of 2 f32");
  assert_string_equal(issues.all[1].line, "train.py:12 in step");
  for (int i = 0; i < 300; i++) run(turn, TT_COLLECTIVE_BROADCAST);
  ok(tt_issues_recorded(&arena, "recorded", (int64_t[]){4, 6}, 2, &issues));
  assert_int_equal(issues.count, 256);
  assert_int_equal(issues.all[255].sequence, 302);
  assert_string_equal(issues.all[255].what, "broadcast of 2 bytes from rank 4");
  tt_dist_destroy(group);
  tt_arena_deinit(&arena);
}

/* -- Words that are waited for -- */

typedef struct saying {
  int rank;
  tt_collective_kind kind;
  int64_t sequence, number;
  tt_status status;
  tt_members *members;
} saying;

static void *compare(void *user) {
  saying *s = user;
  tt_collective c = {.kind = s->kind, .dtype = TT_F32, .y_count = 3, .sequence = s->sequence};
  s->status = tt_members_compare(s->members, &c);
  return NULL;
}

static void *agree(void *user) {
  saying *s = user;
  int64_t own = s->number;
  s->status = tt_members_most(s->members, "parts/0", own, &s->number);
  return NULL;
}

static void both(void *(*body)(void *), saying says[2]) {
  pthread_t other;
  assert_int_equal(pthread_create(&other, NULL, body, &says[1]), 0);
  body(&says[0]);
  pthread_join(other, NULL);
}

static void test_comparing(void **state) {
  (void)state;
  saying says[2] = {{.members = join("g", 0)}, {.members = join("g", 1)}};
  for (int i = 0; i < 3; i++) {
    says[0].sequence = says[1].sequence = i;
    both(compare, says);
    ok(says[0].status);
    ok(says[1].status);
  }
  assert_int_equal(place_of("debug/1/0"), -1); /* the board does not grow */
  assert_true(place_of("debug/2/0") >= 0);
  says[0].sequence = says[1].sequence = 3;
  says[1].kind = TT_COLLECTIVE_BROADCAST;
  both(compare, says);
  const char *where =
      "process group g: the ranks part at collective 3: rank 4: all_reduce (SUM) of "
      "3 f32; rank 6: broadcast of 3 f32 from rank 4";
  for (int i = 0; i < 2; i++) {
    fails(says[i].status, TT_UNAVAILABLE, where);
    tt_members_release(says[i].members);
  }
}

static bool user_asks(void) { return true; }

static void test_nobody_to_compare_with(void **state) {
  (void)state;
  saying s = {.members = join("g", 0)};
  tt_members_set_timeout(s.members, 30);
  compare(&s);
  fails(s.status, TT_UNAVAILABLE,
        "rank 6 has not said what its collective 0 is, while this one's is all_reduce (SUM) of "
        "3 f32 (the time-out is 0.03 s; all ranks have to be in Debug mode)");
  tt_members_set_timeout(s.members, 60000);
  tt_meeting_end("rank 1 of 2 raised"); /* of ranks that are threads */
  compare(&s);
  fails(s.status, TT_UNAVAILABLE, "rank 1 of 2 raised");
  agree(&s);
  fails(s.status, TT_UNAVAILABLE, "rank 1 of 2 raised");
  tt_meeting_reopen(1000);
  tt_interrupt_set_check(user_asks);
  compare(&s);
  fails(s.status, TT_CANCELLED, "interrupted");
  tt_interrupt_set_check(NULL);
  board.broken = true;
  compare(&s);
  fails(s.status, TT_UNAVAILABLE, "nobody is there");
  tt_members_release(s.members);
}

static void test_the_largest_number(void **state) {
  (void)state;
  saying says[2] = {{.members = join("g", 0), .number = 7}, {.members = join("g", 1), .number = 9}};
  both(agree, says);
  for (int i = 0; i < 2; i++) {
    ok(says[i].status);
    assert_int_equal(says[i].number, 9);
    tt_members_release(says[i].members);
  }
  says[0] = (saying){.members = join("g", 0), .number = 7};
  tt_members_set_timeout(says[0].members, 10);
  memset(board.keys, 0, sizeof board.keys);
  agree(&says[0]);
  fails(says[0].status, TT_UNAVAILABLE, "rank 6 has not said the size of its parts");
  tt_members_release(says[0].members);
}

/* -- Failures -- */

static tt_status explain(tt_members *members, const char *order, tt_collective_kind kind,
                         int64_t root, int64_t sequence) {
  tt_collective c = {.kind = kind, .root = root, .sequence = sequence};
  return tt_members_explain(members, order, &c, "the wire was cut");
}

static void test_who_did_not_arrive(void **state) {
  (void)state;
  int64_t turn[TT_TURN_WORDS];
  tt_dist_group *group = begin("absent", turn);
  tt_members *own = join("absent", 0), *other = join("absent", 1);
  run(turn, TT_COLLECTIVE_BARRIER);
  run(turn, TT_COLLECTIVE_ALL_REDUCE);
  ok(say("ended/all/1", "0\x1f"
                        "barrier\x1f\x1f\n"));
  fails(explain(own, "all", TT_COLLECTIVE_ALL_REDUCE, 0, 1), TT_UNAVAILABLE,
        "the wire was cut; this rank did not arrive: 6 (it failed at collective 0) (the "
        "time-out is 5 s)");
  ok(say("ended/all/1", "0\x1f"
                        "barrier\x1f\x1f\n1\x1f"
                        "gather\x1f"
                        "a.py:1\x1f\n"));
  fails(explain(own, "all", TT_COLLECTIVE_ALL_REDUCE, 0, 1), TT_UNAVAILABLE,
        "the wire was cut; all ranks had arrived; the ranks part at collective 1: rank 4: "
        "all_reduce (SUM) of 2 f32 at train.py:12 in step; rank 6: gather at a.py:1");
  ok(take_off(NULL, "ended/all/1"));
  ok(tt_members_leave(other, "ValueError: on purpose"));
  fails(explain(own, "all", TT_COLLECTIVE_ALL_REDUCE, 0, 1), TT_UNAVAILABLE,
        "this rank did not arrive: 6 (it ended with ValueError: on purpose) (the");
  fails(explain(own, "sends", TT_COLLECTIVE_SEND, 1, 5), TT_UNAVAILABLE,
        "; the other end of the message is rank 6 (it ended with ValueError: on purpose)");
  fails(explain(own, "from-1", TT_COLLECTIVE_RECV, -1, 5), TT_UNAVAILABLE,
        "; it was to come from any rank (the");
  board.broken = true;
  fails(explain(own, "all", TT_COLLECTIVE_ALL_REDUCE, 0, 1), TT_UNAVAILABLE,
        "; who is missing is not known, since the store does not answer");
  tt_members_release(own);
  tt_members_release(other);
  tt_dist_destroy(group);
}

/* Who ends tells of all groups; where their boards do not answer, it ends all the same. */
static void test_a_farewell(void **state) {
  (void)state;
  int64_t turn[TT_TURN_WORDS];
  tt_dist_group *group = begin("farewell", turn);
  tt_members *own = join("farewell", 0), *other = join("another", 1);
  run(turn, TT_COLLECTIVE_BARRIER);
  tt_members_farewell();
  int first = place_of("ended/all/0");
  assert_true(first >= 0 && place_of("ended/all/1") >= 0);
  assert_non_null(strstr(board.texts[first], "barrier"));
  board.broken = true;
  tt_members_farewell();
  tt_members_release(own);
  tt_members_release(other);
  tt_dist_destroy(group);
}

/* -- Mail -- */

static void test_mail(void **state) {
  (void)state;
  tt_mail mail;
  char out[2] = {0};
  tt_mail_init(&mail);
  ok(tt_mail_post(&mail, 1, "a", 1));
  ok(tt_mail_post(&mail, 2, "b", 1));
  ok(tt_mail_post(&mail, 1, "c", 1));
  ok(tt_mail_post(&mail, 3, NULL, 0));
  fails(tt_mail_take(&mail, 1, out, 2, 10), TT_INVALID_ARGUMENT, "sent 1 bytes to itself");
  ok(tt_mail_take(&mail, 1, out, 1, 10));
  assert_string_equal(out, "a");
  ok(tt_mail_take(&mail, 1, out, 1, 10));
  assert_string_equal(out, "c");
  fails(tt_mail_take(&mail, 1, out, 1, 1010), TT_UNAVAILABLE, "sent nothing to itself");
  ok(tt_mail_take(&mail, 3, NULL, 0, 10));
  tt_alloc_fail_at(1, false);
  fails(tt_mail_post(&mail, 1, "a", 1), TT_RESOURCE_EXHAUSTED, "memory");
  tt_alloc_fail_at(0, false);
  tt_mail_deinit(&mail); /* with the letter to 2 */
}

static void *post_late(void *user) {
  ok(tt_mail_post(user, 5, "late", 5));
  return NULL;
}

static void test_late_mail(void **state) {
  (void)state;
  tt_mail mail;
  pthread_t thread;
  char out[5];
  tt_mail_init(&mail);
  assert_int_equal(pthread_create(&thread, NULL, post_late, &mail), 0);
  ok(tt_mail_take(&mail, 5, out, 5, 60000));
  assert_string_equal(out, "late");
  pthread_join(thread, NULL);
  tt_mail_deinit(&mail);
}

static void test_steps(void **state) {
  (void)state;
  static const int64_t ranks[] = {1, 3, 5, 6};
  for (int size = 1; size <= 4; size++) {
    tt_members members = {.size = size, .ranks = ranks};
    assert_int_equal(tt_members_step(&members), ((int[]){1, 2, 2, -1})[size - 1]);
  }
}

/* -- Who sent to whom -- */

static void test_notices(void **state) {
  (void)state;
  tt_notices *one = NULL, *same = NULL, *other = NULL;
  int from = -1;
  ok(tt_notices_retain("group", 3, &one));
  ok(tt_notices_retain("group", 3, &same));
  ok(tt_notices_retain("other", 2, &other));
  assert_ptr_equal(one, same);
  assert_false(tt_notices_find(one, 0, &from));
  tt_notices_sent(one, 2, 0);
  assert_false(tt_notices_find(one, 1, &from));
  assert_false(tt_notices_find(other, 0, &from));
  ok(tt_notices_await(same, 0, 60000, &from));
  assert_int_equal(from, 2);
  tt_notices_asked(one, 1, 0);
  tt_notices_sent(one, 1, 0); /* it is for who has asked rank 1 */
  fails(tt_notices_await(one, 0, 20, &from), TT_UNAVAILABLE,
        "no rank has sent a message to rank 0");
  tt_notices_sent(one, 1, 0);
  tt_meeting_end("a rank failed");
  fails(tt_notices_await(one, 2, 60000, &from), TT_CANCELLED, "a rank failed");
  ok(tt_notices_await(one, 0, 60000, &from));
  assert_int_equal(from, 1);
  tt_meeting_reopen(600000);
  tt_notices_release(one);
  tt_notices_release(other);
  tt_notices_release(same);
  for (int nth = 1; nth <= 2; nth++) {
    tt_alloc_fail_at(nth, false);
    fails(tt_notices_retain("group", 3, &one), TT_RESOURCE_EXHAUSTED, "memory");
    tt_alloc_fail_at(0, false);
  }
}

/* -- Memory -- */

static void test_memory_runs_out(void **state) {
  (void)state;
  for (int at = 1; at <= 3; at++) {
    tt_board own = open_board();
    tt_members *members = NULL;
    tt_alloc_fail_at(at, false);
    fails(tt_members_create("g", 0, 2, kTen, &own, &members), TT_RESOURCE_EXHAUSTED, "memory");
    tt_alloc_fail_at(0, false);
    assert_null(members);
    assert_int_equal(board.ways, 0);
  }
  saying s = {.members = join("g", 0), .sequence = 1, .number = 7};
  ok(say("debug/1/1", "1\x1f"
                      "all_reduce (SUM) of 3 f32\x1f\x1f\n"));
  ok(say("parts/0/1", "9"));
  void *(*const bodies[])(void *) = {compare, agree};
  for (int i = 0; i < 2; i++) {
    for (int64_t nth = 1;; nth++) {
      tt_alloc_fail_at(nth, false);
      bodies[i](&s);
      tt_alloc_fail_at(0, false);
      if (!s.status) break;
      fails(s.status, TT_RESOURCE_EXHAUSTED, "memory");
      assert_true(nth < 100);
    }
  }
  assert_int_equal(s.number, 9);
  tt_members_release(s.members);
}

/* A failed collective is told of in any case, if with fewer words. */
static void test_memory_runs_out_in_a_failure(void **state) {
  (void)state;
  int64_t turn[TT_TURN_WORDS];
  tt_dist_group *group = begin("poor", turn);
  tt_members *own = join("poor", 0);
  run(turn, TT_COLLECTIVE_BARRIER);
  ok(say("ended/all/1", "0\x1f"
                        "gather\x1f"
                        "a.py:1\x1f\n"));
  bool told = false;
  for (int64_t nth = 1; !told; nth++) {
    tt_alloc_fail_at(nth, false);
    tt_status status = explain(own, "all", TT_COLLECTIVE_BARRIER, 0, 0);
    tt_alloc_fail_at(0, false);
    told = strstr(tt_status_message(status), "rank 6: gather at a.py:1");
    bool poor = strstr(tt_status_message(status), "who is missing is not known") ||
                strstr(tt_status_message(status), "out of host memory");
    assert_true(told || poor);
    tt_status_release(status);
    assert_true(nth < 100);
  }
  tt_members_release(own);
  tt_dist_destroy(group);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_words, wipe),
      cmocka_unit_test_setup(test_where_ranks_part, wipe),
      cmocka_unit_test_setup(test_where_splits_part, wipe),
      cmocka_unit_test_setup(test_issues_as_a_text, wipe),
      cmocka_unit_test_setup(test_what_was_recorded, wipe),
      cmocka_unit_test_setup(test_comparing, wipe),
      cmocka_unit_test_setup(test_nobody_to_compare_with, wipe),
      cmocka_unit_test_setup(test_the_largest_number, wipe),
      cmocka_unit_test_setup(test_who_did_not_arrive, wipe),
      cmocka_unit_test_setup(test_a_farewell, wipe),
      cmocka_unit_test_setup(test_mail, wipe),
      cmocka_unit_test_setup(test_late_mail, wipe),
      cmocka_unit_test_setup(test_steps, wipe),
      cmocka_unit_test_setup(test_notices, wipe),
      cmocka_unit_test_setup(test_memory_runs_out, wipe),
      cmocka_unit_test_setup(test_memory_runs_out_in_a_failure, wipe),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
