"""What of torchvision's operators has a result whose size depends on data; the others are rows."""

import numpy as np
import torch
from torch import Tensor

from torch_tpu._decompositions import decomposes

library = torch.library.Library("torch_tpu", "FRAGMENT")  # the operators live as long as this
library.define("nms_kept(Tensor boxes, float limit) -> Tensor")


def _one_for_each(boxes: Tensor, limit: float) -> Tensor:
    return boxes.new_empty(boxes.shape[0], dtype=torch.bool)


library.impl("nms_kept", _one_for_each, "Meta")


def _limit(threshold: float, dtype: torch.dtype) -> float:
    """What an overlap may be, as boxes are computed: the CPU compares with the number as it is."""
    narrow = np.float64(threshold) if dtype == torch.float64 else np.float32(threshold)
    return float(np.nextafter(narrow, -np.inf) if float(narrow) > threshold else narrow)


@decomposes("torchvision::nms")
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Numbers of the boxes that overlap no better one too much, by descending score."""
    torch._check(dets.dim() == 2, lambda: f"boxes should be a 2d tensor, got {dets.dim()}D")
    torch._check(
        dets.size(1) == 4,
        lambda: f"boxes should have 4 elements in dimension 1, got {dets.size(1)}",
    )
    torch._check(scores.dim() == 1, lambda: f"scores should be a 1d tensor, got {scores.dim()}D")
    torch._check(
        dets.size(0) == scores.size(0),
        lambda: (
            "boxes and scores should have same number of elements in dimension 0, got "
            f"{dets.size(0)} and {scores.size(0)}"
        ),
    )
    torch._check(dets.dtype == scores.dtype, lambda: "dets should have the same type as scores")
    order = scores.sort(stable=True, descending=True).indices
    kept = torch.ops.torch_tpu.nms_kept(
        dets.index_select(0, order), _limit(iou_threshold, dets.dtype)
    )
    return order.masked_select(kept)
