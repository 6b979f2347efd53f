/* Regions of interest: boxes on images, each cut into bins. What is made of a bin is read at some
 * of its points, whose number depends on the box: one loop runs over as many points as the largest
 * bin has, for all bins at once.
 *
 * Position-sensitive operators give each bin channels of its own: the image's channels are
 * `channels` times `sections`, the bins. Others have one section. */
#ifndef TT_ROI_H
#define TT_ROI_H

#include "ops/nn.h"

typedef struct tt_roi {
  tt_lower *cx;
  tt_dtype dtype, compute; /* of the operands; what they are computed in */
  int64_t count, images, channels, sections;
  int64_t size[2], bins[2]; /* of images and boxes, along y and x */
  tt_node *edge[2][2];      /* [count]: along y and x, where a box begins and ends, scaled */
  tt_node *first;           /* I32 [count, bins]: the row where the bin's section begins */
} tt_roi;

/* Argument 0 is the image, or the gradient of the result, argument 1 the boxes, and at `scale` are
 * the scale and the numbers of bins; the image's four sizes begin at argument `sizes`, if that is
 * not 0. false: the builder has failed, or there is nothing to compute, and all results are zeros.
 */
bool tt_roi_begin(tt_lower *cx, int scale, int sizes, bool sections, int results, tt_roi *roi);

/* The image's numbers as rows of channels, [images * sections * height * width, channels]; nothing
 * but zeros; and rows as result 0, an image. */
tt_node *tt_roi_rows(const tt_roi *roi);
tt_node *tt_roi_no_rows(const tt_roi *roi);
void tt_roi_out_image(const tt_roi *roi, tt_node *rows);
/* Argument 0, [count, channels, bins], as [count, bins, channels]; and the way back, as result k.
 */
tt_node *tt_roi_gradient(const tt_roi *roi);
void tt_roi_out_bins(const tt_roi *roi, int k, tt_node *x);
/* Result 1 of position-sensitive operators: the channel that each bin reads. */
void tt_roi_out_mapping(const tt_roi *roi);

/* Rounded as the CPU rounds each step: where the points of halves lie depends on it. */
tt_node *tt_roi_rounded(const tt_roi *roi, tt_node *x);
/* [count] repeated along the bins of an axis; 0, 1, .. along these; and [count, bins of the axis]
 * as [count, bins]. */
tt_node *tt_roi_along(const tt_roi *roi, tt_node *x, int axis);
tt_node *tt_roi_bin(const tt_roi *roi, int axis, tt_dtype dtype);
tt_node *tt_roi_spread(const tt_roi *roi, tt_node *x, int axis);
/* [count, bins] repeated for each channel. */
tt_node *tt_roi_each(const tt_roi *roi, tt_node *x);
/* The rows, I32 [count, bins], at y and x, each [count, bins of the axis]. */
tt_node *tt_roi_at(const tt_roi *roi, tt_node *y, tt_node *x);

/* One point of each bin: the point's numbers along the axes (rank 0, I32), and whether the bin has
 * it, [count, bins]. Changes the state. */
typedef void (*tt_roi_step)(const tt_roi *roi, tt_node *const *point, tt_node *inside,
                            tt_node **state, void *user);
/* Runs the step for all points, row by row: points[axis], I32 [count, bins of the axis], says how
 * many a bin has along it. */
void tt_roi_each_point(const tt_roi *roi, tt_node *const *points, tt_roi_step step, void *user,
                       int n, tt_node **state);
/* rows, with `updates`, [count, bins, channels], added at `index` where `inside`. */
tt_node *tt_roi_add(const tt_roi *roi, tt_node *rows, tt_node *index, tt_node *inside,
                    tt_node *updates);

#endif
