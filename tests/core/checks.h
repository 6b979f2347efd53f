/* Checks of statuses, which they take. */
#ifndef TT_CHECKS_H
#define TT_CHECKS_H

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static inline void ok(tt_status status) {
  if (status) fail_msg("%s", tt_status_message(status));
}

/* `words`: a part of the message */
static inline void fails(tt_status status, tt_code code, const char *words) {
  if (!status) fail_msg("success instead of '%s'", words);
  if (tt_status_code(status) != code || !strstr(tt_status_message(status), words))
    fail_msg("%s '%s' instead of %s '%s'", tt_code_name(tt_status_code(status)),
             tt_status_message(status), tt_code_name(code), words);
  tt_status_release(status);
}

#endif
