/* A board where processes leave bytes for one another, under keys that all of them see. */
#ifndef TT_BOARD_H
#define TT_BOARD_H

#include "base/mem.h"
#include "base/status.h"

#include <stdbool.h>

/* Table of functions, called by several threads at once, holding no lock but where
 * tt_members_farewell (dist/failure.h) says so; the user's pointer is theirs. */
typedef struct tt_board {
  void *user;
  tt_status (*put)(void *user, const char *key, const void *data, size_t size);
  /* Adds the bytes to `out`, where *found says that there are some; does not wait until there are.
   */
  tt_status (*get)(void *user, const char *key, tt_text *out, bool *found);
  tt_status (*remove)(void *user, const char *key);
  /* The same board by a way of its own, on which nobody waits for calls of others. */
  tt_status (*again)(void *user, struct tt_board *out);
  void (*release)(void *user);
} tt_board;

/* Adds the bytes to `out` once they are there. *found is false where they are not by then (as of
 * tt_now_ms). CANCELLED: the wait was interrupted; or what `over` says, which is asked in between,
 * and may be NULL. */
tt_status tt_board_await(const tt_board *board, const char *key, int64_t until_ms,
                         tt_status (*over)(void), tt_text *out, bool *found);

#endif
