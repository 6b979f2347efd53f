#include "base/board.h"

#include "base/clock.h"
#include "base/interrupt.h"

tt_status tt_board_await(const tt_board *board, const char *key, int64_t until_ms,
                         tt_status (*over)(void), tt_text *out, bool *found) {
  enum { SHORT = 1, LONG = 20 };
  for (int64_t pause = SHORT;; pause = 2 * pause < LONG ? 2 * pause : LONG) {
    TT_TRY(board->get(board->user, key, out, found));
    if (*found) return tt_text_status(out);
    if (tt_now_ms() >= until_ms) return TT_SUCCESS;
    if (over) TT_TRY(over());
    TT_TRY(tt_interrupted());
    tt_sleep_ms(pause);
  }
}
