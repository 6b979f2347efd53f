/* What a thread has chosen for what it records. */
#ifndef TT_POLICY_H
#define TT_POLICY_H

#include <stdbool.h>

typedef enum tt_mode { TT_MODE_DEBUG, TT_MODE_STRICT, TT_MODE_FUSED } tt_mode;

/* What becomes of the layers of a captured graph that repeat (stream/divided.h). */
typedef enum tt_repeats {
  TT_REPEATS_WHOLE,  /* the graph is one program */
  TT_REPEATS_AUTO,   /* equal ones are a program where that pays */
  TT_REPEATS_DIVIDED /* wherever two follow one another */
} tt_repeats;

typedef struct tt_policy {
  tt_mode mode;
  bool known_only;     /* nothing new is compiled: an error instead */
  bool follows;        /* the thread works for another one, which waits: autograd's do */
  bool deterministic;  /* no result depends on when a compilation ends */
  bool keeps_sizes;    /* what is uploaded is of its size for ever, as parameters are */
  bool text_only;      /* what is captured is for others to run, and not compiled */
  tt_repeats repeats;  /* of what is captured */
  const char *options; /* how it is compiled: a text's first lines (pjrt/pjrt.h), or NULL */
} tt_policy;

#endif
