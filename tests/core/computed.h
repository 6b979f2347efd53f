/* Tests with right numbers on every plugin that computes (numbers.h), in every mode. */
#ifndef TT_COMPUTED_H
#define TT_COMPUTED_H

#include "numbers.h"

extern tt_stream *stream, *second; /* of device 0: the default one, and another */

void on_all(void (*test)(void));
void release(int count, tt_storage **storages);

/* A test of cmocka's that runs `name` on all. */
#define ON_ALL(name)                                                                               \
  static void test_##name(void **state) {                                                          \
    (void)state;                                                                                   \
    on_all(name);                                                                                  \
  }

#endif
