#include "graph/repeat.h"

#include <stdbool.h>

typedef struct finding {
  const void *const *items;
  const int64_t *weights;
  int count;
  const tt_repeat_limits *limits;
  tt_repeat best;
} finding;

static bool recurs(const finding *f, int i, int period) {
  return i + period < f->count && f->items[i] == f->items[i + period];
}

static bool are_different_enough(const finding *f, int first, int period) {
  int different = 0;
  for (int i = first; i < first + period && different < f->limits->different; i++) {
    int k = first;
    while (f->items[k] != f->items[i]) k++;
    different += k == i;
  }
  return different >= f->limits->different;
}

static int saved(const tt_repeat *repeat) { return (repeat->count - 1) * repeat->period; }

static void consider(finding *f, tt_repeat one) {
  if (one.count < f->limits->count) return;
  if (f->best.count && saved(&one) <= saved(&f->best)) return;
  int64_t weight = f->weights[one.first + one.period] - f->weights[one.first];
  if (weight >= f->limits->weight && are_different_enough(f, one.first, one.period)) f->best = one;
}

/* Item `at` recurs: the whole run of items around it that do. Returns its end. */
static int follow(finding *f, int at, int period) {
  int begin = at, end = at;
  while (begin > 0 && recurs(f, begin - 1, period)) begin--;
  while (recurs(f, end, period)) end++;
  int length = end - begin + period;
  consider(
      f, (tt_repeat){
             .first = begin, .period = period, .count = length / period, .slack = length % period});
  return end;
}

/* Of a repetition every `period`th item recurs, wherever one begins to look. */
static void find_with(finding *f, int period) {
  int in_a_row = 0;
  for (int at = 0; at + period < f->count;) {
    in_a_row = recurs(f, at, period) ? in_a_row + 1 : 0;
    bool enough = in_a_row >= f->limits->count - 1;
    at = enough ? follow(f, at, period) + 1 : at + period;
    if (enough) in_a_row = 0;
  }
}

tt_repeat tt_repeat_find(const void *const *items, const int64_t *weights, int count,
                         const tt_repeat_limits *limits) {
  finding f = {.items = items, .weights = weights, .count = count, .limits = limits};
  int shortest = limits->different > 1 ? limits->different : 1, longest = count / limits->count;
  if (longest > TT_LONGEST_PERIOD) longest = TT_LONGEST_PERIOD;
  for (int period = shortest; period <= longest; period++) {
    if (f.best.count && saved(&f.best) >= count - period) break;
    find_with(&f, period);
  }
  return f.best;
}
