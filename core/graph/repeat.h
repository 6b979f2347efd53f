/* What repeats in a sequence: the same items, several times in a row. */
#ifndef TT_REPEAT_H
#define TT_REPEAT_H

#include <stdint.h>

enum { TT_LONGEST_PERIOD = 2048 };

/* Items [first, first + count * period) are `count` times the same ones. They go on being so for
 * `slack` items, fewer than a period: the repetition may begin up to so much later. */
typedef struct tt_repeat {
  int first, period, count, slack; /* count 0: nothing repeats */
} tt_repeat;

/* What is worth finding: `count` times at least (two at least), with so many different items in a
 * period at least, which weigh so much together. */
typedef struct tt_repeat_limits {
  int count, different;
  int64_t weight;
} tt_repeat_limits;

/* The repetition that leaves the fewest items to be seen for the first time, the shortest period of
 * several such. Items are equal if their pointers are. weights[i] is what items before i weigh, up
 * to [count]. Takes count * log(count) steps, but for what nearly repeats: there count for each
 * period. */
tt_repeat tt_repeat_find(const void *const *items, const int64_t *weights, int count,
                         const tt_repeat_limits *limits);

#endif
