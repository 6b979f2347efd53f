/* Moves between the channels and the two last dims. */
#include "ops/nn.h"

/* self [.., c * r * r, h, w], upscale_factor -> [.., c, h * r, w * r] */
void tt_lower_pixel_shuffle(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int rank = x->type.rank, c = rank - 3;
  int64_t r = tt_int(cx, 1);
  if (rank < 3 || r < 1 || x->type.dims[c] % (r * r)) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                "pixel_shuffle expects its input's channels to be divisible by the square of "
                "upscale_factor %lld",
                (long long)r);
    return;
  }
  x = tt_split_dim(cx, x, c, x->type.dims[c] / (r * r), r * r);
  x = tt_split_dim(cx, x, c + 1, r, r); /* c, r, r, h, w */
  x = tt_move_dim(cx, x, c + 1, c + 3); /* c, rw, h, rh, w */
  x = tt_move_dim(cx, x, c + 1, c + 4); /* c, h, rh, w, rw */
  tt_out_as(cx, 0, tt_merge_dim(cx, tt_merge_dim(cx, x, c + 3), c + 1));
}

/* self [.., c, h * r, w * r], downscale_factor -> [.., c * r * r, h, w] */
void tt_lower_pixel_unshuffle(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int rank = x->type.rank, c = rank - 3;
  int64_t r = tt_int(cx, 1);
  if (rank < 3 || r < 1 || x->type.dims[c + 1] % r || x->type.dims[c + 2] % r) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                "pixel_unshuffle expects height and width to be divisible by downscale_factor %lld",
                (long long)r);
    return;
  }
  x = tt_split_dim(cx, x, c + 2, x->type.dims[c + 2] / r, r);
  x = tt_split_dim(cx, x, c + 1, x->type.dims[c + 1] / r, r); /* c, h, rh, w, rw */
  x = tt_move_dim(cx, x, c + 2, c + 1);                       /* c, rh, h, w, rw */
  x = tt_move_dim(cx, x, c + 4, c + 2);                       /* c, rh, rw, h, w */
  tt_out_as(cx, 0, tt_merge_dim(cx, tt_merge_dim(cx, x, c), c));
}

/* self [n, groups * c, ..], groups */
void tt_lower_channel_shuffle(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int64_t groups = tt_int(cx, 1);
  if (x->type.rank < 3 || groups < 1 || x->type.dims[1] % groups) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                "channel_shuffle: channels must be divisible by groups");
    return;
  }
  x = tt_split_dim(cx, x, 1, groups, x->type.dims[1] / groups);
  tt_out_as(cx, 0, tt_merge_dim(cx, tt_move_dim(cx, x, 1, 2), 1));
}
