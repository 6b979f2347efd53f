/* Collectives through shared memory: ranks are threads, each with a mapping of its own, or
 * processes; against sums and copies made one by one. */
#include "dist/combine.h"
#include "dist/shared.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checks.h"
#include "support.h"

/* -- A way to tell all, in memory of its own that processes share -- */

enum { MOST = 5, NEWS = 1024 };
typedef struct way {
  pthread_barrier_t barrier;
  int size;
  bool elsewhere; /* the last rank seems to be on another host */
  unsigned char news[MOST][NEWS];
} way;

typedef struct teller {
  way *by;
  int rank;
} teller;

static tt_status tell(void *user, const void *own, int64_t bytes, void *all) {
  teller *t = user;
  way *by = t->by;
  assert_true(bytes <= NEWS);
  memcpy(by->news[t->rank], own, (size_t)bytes);
  if (by->elsewhere && t->rank == by->size - 1) by->news[t->rank][0] ^= 1;
  pthread_barrier_wait(&by->barrier);
  for (int i = 0; i < by->size; i++) memcpy((char *)all + i * bytes, by->news[i], (size_t)bytes);
  pthread_barrier_wait(&by->barrier);
  return TT_SUCCESS;
}

static way *create_way(int size) {
  way *by = mmap(NULL, sizeof *by, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(by != MAP_FAILED);
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&by->barrier, &shared, (unsigned)size);
  pthread_barrierattr_destroy(&shared);
  by->size = size;
  return by;
}

static void destroy_way(way *by) {
  pthread_barrier_destroy(&by->barrier);
  munmap(by, sizeof *by);
}

/* -- Ranks that are threads -- */

typedef struct ranks ranks;
typedef struct rank {
  ranks *of;
  teller teller;
  pthread_t thread;
  tt_segment *segment;
  tt_status status;
} rank;

struct ranks {
  way *by;
  int size;
  rank all[MOST];
  tt_status (*act)(rank *r);
  void *user;
};

static void *open_one(void *user) {
  rank *r = user;
  r->status = tt_segment_open(r->teller.rank, r->of->size, tell, &r->teller, &r->segment);
  return NULL;
}

static void *act_one(void *user) {
  rank *r = user;
  r->status = r->of->act(r);
  return NULL;
}

static void each(ranks *of, void *(*act)(void *)) {
  for (int i = 0; i < of->size; i++) pthread_create(&of->all[i].thread, NULL, act, &of->all[i]);
  for (int i = 0; i < of->size; i++) pthread_join(of->all[i].thread, NULL);
}

static void open_ranks(ranks *of, int size, bool elsewhere) {
  *of = (ranks){.by = create_way(size), .size = size};
  of->by->elsewhere = elsewhere;
  for (int i = 0; i < size; i++) {
    of->all[i].of = of;
    of->all[i].teller = (teller){.by = of->by, .rank = i};
  }
  each(of, open_one);
  for (int i = 0; i < size; i++) ok(of->all[i].status);
}

static void close_ranks(ranks *of) {
  for (int i = 0; i < of->size; i++) tt_segment_close(of->all[i].segment);
  destroy_way(of->by);
}

static void run_all(ranks *of, tt_status (*act)(rank *r), void *user) {
  of->act = act;
  of->user = user;
  each(of, act_one);
}

/* -- Arrays -- */

static const tt_dtype dtypes[] = {TT_U8, TT_I8, TT_I32, TT_I64, TT_F16, TT_BF16, TT_F32, TT_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* A small whole number as an element. */
static void put(void *to, tt_dtype dtype, int64_t number) {
  static const uint16_t f16[] = {0xbc00, 0, 0x3c00, 0x4000}, bf16[] = {0xbf80, 0, 0x3f80, 0x4000};
  float single = (float)number;
  double twice = (double)number;
  const void *from = dtype == TT_F16    ? (const void *)&f16[number + 1]
                     : dtype == TT_BF16 ? (const void *)&bf16[number + 1]
                     : dtype == TT_F32  ? (const void *)&single
                     : dtype == TT_F64  ? (const void *)&twice
                                        : (const void *)&number; /* little-endian */
  memcpy(to, from, (size_t)tt_dtype_bytes(dtype));
}

static void fill(unsigned char *to, tt_dtype dtype, int64_t count) {
  int64_t unit = tt_dtype_bytes(dtype);
  for (int64_t i = 0; i < count; i++) put(to + i * unit, dtype, below(4) - 1);
}

/* -- Each collective against what it should be -- */

typedef struct sample {
  tt_collective_kind kind;
  tt_reduction op;
  tt_dtype dtype;
  int64_t part, unit, root; /* part: elements */
  bool even;
  int64_t gives[MOST][MOST], gets[MOST][MOST]; /* elements, of all_to_all */
  int64_t x_count[MOST], y_count[MOST];
  unsigned char *x[MOST], *y[MOST], *want[MOST];
} sample;

static void count_elements(sample *s, int size) {
  for (int i = 0; i < size; i++) {
    int64_t x = s->part, y = s->part, all = size * s->part;
    switch (s->kind) {
    case TT_COLLECTIVE_ALL_GATHER:
      y = all;
      break;
    case TT_COLLECTIVE_REDUCE_SCATTER:
      x = all;
      break;
    case TT_COLLECTIVE_GATHER:
      y = i == s->root ? all : 0;
      break;
    case TT_COLLECTIVE_SCATTER:
      x = i == s->root ? all : 0;
      break;
    case TT_COLLECTIVE_ALL_TO_ALL:
      x = y = 0;
      for (int k = 0; k < size; k++) {
        x += s->gives[i][k];
        y += s->gives[k][i];
        s->gets[i][k] = s->gives[k][i];
      }
      break;
    default:
      if (s->kind == TT_COLLECTIVE_BARRIER) y = 0;
      x = 0;
      break;
    }
    s->x_count[i] = x;
    s->y_count[i] = y;
  }
}

static void make_arrays(sample *s, int size) {
  for (int i = 0; i < size; i++) {
    s->x[i] = malloc((size_t)(s->x_count[i] * s->unit) + 1);
    s->y[i] = malloc((size_t)(s->y_count[i] * s->unit) + 1);
    s->want[i] = malloc((size_t)(s->y_count[i] * s->unit) + 1);
    assert_true(s->x[i] && s->y[i] && s->want[i]);
    fill(s->x[i], s->dtype, s->x_count[i]);
    fill(s->y[i], s->dtype, s->y_count[i]);
    memcpy(s->want[i], s->y[i], (size_t)(s->y_count[i] * s->unit));
  }
}

static void reduce_to(const sample *s, int size, unsigned char *const *from, int64_t offset,
                      unsigned char *to) {
  size_t bytes = (size_t)(s->part * s->unit);
  unsigned char *sum = malloc(bytes + 1);
  assert_non_null(sum);
  memcpy(sum, from[0] + offset, bytes);
  for (int i = 1; i < size; i++)
    assert_true(tt_combine(s->dtype, s->op, sum, sum, from[i] + offset, s->part));
  memcpy(to, sum, bytes);
  free(sum);
}

static void expect_exchanged(sample *s, int size, int to) {
  unsigned char *want = s->want[to];
  for (int from = 0; from < size; from++) {
    int64_t before = 0, bytes = s->gives[from][to] * s->unit;
    for (int k = 0; k < to; k++) before += s->gives[from][k] * s->unit;
    memcpy(want, s->x[from] + before, (size_t)bytes);
    want += bytes;
  }
}

static void expect(sample *s, int size) {
  size_t bytes = (size_t)(s->part * s->unit);
  unsigned char *before[MOST];
  memcpy(before, s->y, sizeof before);
  for (int i = 0; i < size; i++) {
    bool takes_all =
        s->kind == TT_COLLECTIVE_ALL_GATHER || (s->kind == TT_COLLECTIVE_GATHER && i == s->root);
    for (int k = 0; takes_all && k < size; k++)
      memcpy(s->want[i] + (size_t)k * bytes, s->x[k], bytes);
    if (s->kind == TT_COLLECTIVE_ALL_REDUCE || (s->kind == TT_COLLECTIVE_REDUCE && i == s->root))
      reduce_to(s, size, before, 0, s->want[i]);
    if (s->kind == TT_COLLECTIVE_BROADCAST) memcpy(s->want[i], s->y[s->root], bytes);
    if (s->kind == TT_COLLECTIVE_REDUCE_SCATTER)
      reduce_to(s, size, s->x, i * (int64_t)bytes, s->want[i]);
    if (s->kind == TT_COLLECTIVE_SCATTER)
      memcpy(s->want[i], s->x[s->root] + (size_t)i * bytes, bytes);
    if (s->kind == TT_COLLECTIVE_ALL_TO_ALL) expect_exchanged(s, size, i);
  }
}

static tt_collective collective_of(const sample *s, int who, int size) {
  bool uneven = s->kind == TT_COLLECTIVE_ALL_TO_ALL && !s->even;
  return (tt_collective){.kind = s->kind,
                         .op = s->op,
                         .dtype = s->dtype,
                         .rank = who,
                         .size = size,
                         .root = s->root,
                         .x = s->x_count[who] ? s->x[who] : NULL,
                         .y = s->y_count[who] ? s->y[who] : NULL,
                         .x_count = s->x_count[who],
                         .y_count = s->y_count[who],
                         .x_splits = uneven ? s->gives[who] : NULL,
                         .y_splits = uneven ? s->gets[who] : NULL};
}

static tt_status run_sample(rank *r) {
  tt_collective c = collective_of(r->of->user, r->teller.rank, r->of->size);
  return tt_shared_run(r->segment, &c, 20000);
}

static void draw_sample(sample *s, int size) {
  static const int64_t parts[] = {0, 1, 13, 2100, 5000, 70000, 300000};
  *s = (sample){.kind = (tt_collective_kind)below(TT_COLLECTIVE_KINDS), .dtype = TT_U8};
  while (!tt_shared_does(s->kind)) s->kind = (tt_collective_kind)below(TT_COLLECTIVE_KINDS);
  static const tt_reduction ops[] = {TT_REDUCE_SUM,  TT_REDUCE_PRODUCT, TT_REDUCE_MIN,
                                     TT_REDUCE_MAX,  TT_REDUCE_BAND,    TT_REDUCE_BOR,
                                     TT_REDUCE_BXOR, TT_REDUCE_SUM};
  s->op = ops[below(8)];
  if (tt_collective_reduces(s->kind)) s->dtype = dtypes[below(DTYPES)];
  if (tt_is_float(s->dtype) && s->op >= TT_REDUCE_BAND) s->op = TT_REDUCE_SUM;
  s->unit = tt_dtype_bytes(s->dtype);
  s->part = parts[below(s->unit > 4 ? 6 : 7)];
  s->root = below(size);
  s->even = below(2);
  for (int i = 0; i < size; i++)
    for (int k = 0; k < size; k++) s->gives[i][k] = s->even ? s->part : below(s->part + 1);
  count_elements(s, size);
  make_arrays(s, size);
  expect(s, size);
}

static void check_sample(ranks *of) {
  sample s;
  draw_sample(&s, of->size);
  run_all(of, run_sample, &s);
  for (int i = 0; i < of->size; i++) {
    ok(of->all[i].status);
    if (memcmp(s.y[i], s.want[i], (size_t)(s.y_count[i] * s.unit)) != 0)
      fail_msg("%s of %lld %s by %s, root %lld: rank %d of %d has something else",
               tt_collective_name(s.kind), (long long)s.part, tt_dtype_name(s.dtype),
               tt_reduction_name(s.op), (long long)s.root, i, of->size);
    free(s.x[i]);
    free(s.y[i]);
    free(s.want[i]);
  }
}

static void test_random_collectives(void **state) {
  (void)state;
  random_seed(7);
  int cases = case_count(200);
  for (int size = 2; size <= MOST; size++) {
    ranks of;
    open_ranks(&of, size, false);
    for (int i = 0; i < size; i++) assert_non_null(of.all[i].segment);
    for (int i = 0; i < cases; i++) check_sample(&of);
    close_ranks(&of);
  }
}

/* -- Reductions by themselves -- */

static void test_reductions(void **state) {
  (void)state;
  static const struct {
    tt_reduction op;
    int64_t a, b, result;
  } cases[] = {
      {TT_REDUCE_SUM, 2, -1, 1},      {TT_REDUCE_SUM, 1, 1, 2}, {TT_REDUCE_PRODUCT, 2, 1, 2},
      {TT_REDUCE_PRODUCT, -1, 1, -1}, {TT_REDUCE_MIN, 1, 2, 1}, {TT_REDUCE_MAX, 0, 2, 2},
      {TT_REDUCE_BAND, 1, 2, 0},      {TT_REDUCE_BOR, 2, 0, 2}, {TT_REDUCE_BXOR, 2, 2, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < DTYPES; k++) {
      unsigned char a[8], b[8], out[8], want[8];
      put(a, dtypes[k], cases[i].a);
      put(b, dtypes[k], cases[i].b);
      put(want, dtypes[k], cases[i].result);
      bool known = !tt_is_float(dtypes[k]) || cases[i].op < TT_REDUCE_BAND;
      assert_int_equal(tt_combine(dtypes[k], cases[i].op, out, a, b, 1), known);
      if (known) assert_memory_equal(out, want, (size_t)tt_dtype_bytes(dtypes[k]));
    }
  assert_false(tt_combine(TT_C64, TT_REDUCE_SUM, NULL, NULL, NULL, 0));
  assert_false(tt_combine(TT_F32, TT_REDUCE_AVG, NULL, NULL, NULL, 0));
  int8_t large[2] = {127, 1};
  assert_true(tt_combine(TT_I8, TT_REDUCE_SUM, large, large, large + 1, 1));
  assert_int_equal(large[0], -128);
  float nan[2] = {NAN, 1}, out = 0;
  for (int i = 0; i < 2; i++) {
    assert_true(tt_combine(TT_F32, i ? TT_REDUCE_MAX : TT_REDUCE_MIN, &out, nan, nan + 1, 1));
    assert_true(isnan(out));
    assert_true(tt_combine(TT_F32, i ? TT_REDUCE_MAX : TT_REDUCE_MIN, &out, nan + 1, nan, 1));
    assert_true(isnan(out));
  }
  uint16_t tie[2] = {0x3f81, 0x3b80}; /* 1 + 2^-7, and half of its last place: to even */
  assert_true(tt_combine(TT_BF16, TT_REDUCE_SUM, tie, tie, tie + 1, 1));
  assert_int_equal(tie[0], 0x3f82);
}

/* -- What goes wrong -- */

static tt_status ask_apart(rank *r) {
  float y[4] = {0};
  tt_collective c = {.kind = r->teller.rank ? TT_COLLECTIVE_BROADCAST : TT_COLLECTIVE_ALL_REDUCE,
                     .dtype = TT_F32,
                     .rank = r->teller.rank,
                     .size = r->of->size,
                     .y = y,
                     .y_count = 4};
  return tt_shared_run(r->segment, &c, 5000);
}

static void test_ranks_that_part(void **state) {
  (void)state;
  ranks of;
  open_ranks(&of, 2, false);
  for (int again = 0; again < 2; again++) {
    run_all(&of, ask_apart, NULL);
    for (int i = 0; i < 2; i++)
      fails(of.all[i].status, TT_UNAVAILABLE, again ? "" : "asks for another");
  }
  close_ranks(&of);
}

/* Rank 0 gives more than rank 1 expects. */
static tt_status exchange_apart(rank *r) {
  unsigned char x[8] = {0}, y[8] = {0};
  int64_t gives[2] = {2, r->teller.rank ? 2 : 3}, gets[2] = {2, 2};
  tt_collective c = {.kind = TT_COLLECTIVE_ALL_TO_ALL,
                     .dtype = TT_U8,
                     .rank = r->teller.rank,
                     .size = 2,
                     .x = x,
                     .y = y,
                     .x_count = gives[0] + gives[1],
                     .y_count = 4,
                     .x_splits = gives,
                     .y_splits = gets};
  tt_status status = tt_shared_run(r->segment, &c, 5000);
  if (r->teller.rank) return status;
  tt_status_release(status); /* it has all that it expects; the next one fails */
  return ask_apart(r);
}

static void test_parts_that_differ(void **state) {
  (void)state;
  ranks of;
  open_ranks(&of, 2, false);
  run_all(&of, exchange_apart, NULL);
  fails(of.all[1].status, TT_UNAVAILABLE, "gives 3 bytes of a part of which 2 are expected");
  fails(of.all[0].status, TT_UNAVAILABLE, "gave up");
  close_ranks(&of);
}

static tt_status wait_alone(rank *r) {
  if (r->teller.rank) return TT_SUCCESS;
  tt_collective c = {.kind = TT_COLLECTIVE_BARRIER, .dtype = TT_U8, .size = 2};
  return tt_shared_run(r->segment, &c, 200);
}

static void test_who_does_not_come(void **state) {
  (void)state;
  ranks of;
  open_ranks(&of, 2, false);
  run_all(&of, wait_alone, NULL);
  fails(of.all[0].status, TT_UNAVAILABLE, "timed out waiting for the group's rank 1");
  close_ranks(&of);
}

static void test_no_such_root(void **state) {
  (void)state;
  ranks of;
  open_ranks(&of, 2, false);
  tt_collective c = {.kind = TT_COLLECTIVE_BROADCAST, .dtype = TT_U8, .size = 2, .root = 2};
  fails(tt_shared_run(of.all[0].segment, &c, 200), TT_INVALID_ARGUMENT, "no rank 2");
  close_ranks(&of);
}

static void test_another_host(void **state) {
  (void)state;
  ranks of;
  open_ranks(&of, 3, true);
  for (int i = 0; i < 3; i++) assert_null(of.all[i].segment);
  close_ranks(&of);
  open_ranks(&of, 1, false);
  assert_null(of.all[0].segment);
  close_ranks(&of);
}

static void test_memory_that_runs_out(void **state) {
  (void)state;
  for (int nth = 1; nth <= 2; nth++) {
    tt_segment *segment = NULL;
    tt_alloc_fail_at(nth, false);
    fails(tt_segment_open(0, 2, tell, NULL, &segment), TT_RESOURCE_EXHAUSTED, "");
    tt_alloc_fail_at(0, false);
    assert_null(segment);
  }
}

/* -- Ranks that are processes -- */

static int be_a_child(way *by, bool ends) {
  teller own = {.by = by, .rank = 1};
  tt_segment *segment = NULL;
  float y[2] = {1, 2};
  if (tt_segment_open(1, 2, tell, &own, &segment) || !segment) return 1;
  tt_collective c = {.kind = TT_COLLECTIVE_ALL_REDUCE, .dtype = TT_F32, .rank = 1, .size = 2};
  c.y = y;
  c.y_count = 2;
  if (tt_shared_run(segment, &c, 20000) || y[1] != 6) return 2;
  if (ends) _exit(0); /* at once, without a word */
  tt_segment_close(segment);
  return 0;
}

static void test_a_process_that_ends(void **state) {
  (void)state;
  way *by = create_way(2);
  teller own = {.by = by, .rank = 0};
  pid_t child = fork();
  if (!child) _exit(be_a_child(by, true));
  tt_segment *segment = NULL;
  float y[2] = {3, 4};
  int status = 0;
  ok(tt_segment_open(0, 2, tell, &own, &segment));
  assert_non_null(segment);
  tt_collective c = {.kind = TT_COLLECTIVE_ALL_REDUCE, .dtype = TT_F32, .size = 2};
  c.y = y;
  c.y_count = 2;
  ok(tt_shared_run(segment, &c, 20000));
  assert_true(y[0] == 4 && y[1] == 6);
  int64_t begun = tt_now_ms();
  fails(tt_shared_run(segment, &c, 20000), TT_UNAVAILABLE, "the process of the group's rank 1");
  assert_in_range(tt_now_ms() - begun, 0, 10000);
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  tt_segment_close(segment);
  destroy_way(by);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_collectives),  cmocka_unit_test(test_reductions),
      cmocka_unit_test(test_ranks_that_part),     cmocka_unit_test(test_parts_that_differ),
      cmocka_unit_test(test_who_does_not_come),   cmocka_unit_test(test_no_such_root),
      cmocka_unit_test(test_another_host),        cmocka_unit_test(test_memory_that_runs_out),
      cmocka_unit_test(test_a_process_that_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
