/* What a thread has chosen for what it records. */
#ifndef TT_POLICY_H
#define TT_POLICY_H

#include <stdbool.h>

typedef enum tt_mode { TT_MODE_DEBUG, TT_MODE_STRICT, TT_MODE_FUSED } tt_mode;

typedef struct tt_policy {
  tt_mode mode;
  bool known_only;    /* nothing new is compiled: an error instead */
  bool follows;       /* the thread works for another one, which waits: autograd's do */
  bool deterministic; /* no result depends on when a compilation ends */
  bool text_only;     /* what is captured is not compiled before it is launched */
} tt_policy;

#endif
