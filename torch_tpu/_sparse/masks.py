"""The elements of one tensor at the places of another one."""

import torch
from torch import Tensor

from torch_tpu._register import COMPRESSED, COO, register
from torch_tpu._sparse import compressed, coo
from torch_tpu._sparse.compressed import Members


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places of mask."""
    if self.layout == torch.strided:
        values = coo.take(self, mask)
    else:
        values = coo.lookup(self, coo.numbers(mask))
    return coo.make(mask._indices().clone(), values, mask.shape, mask.is_coalesced())


def mask_projection(self: Tensor, mask: Tensor, accumulate_matches: bool = False) -> Tensor:
    """self with zeros where mask has no element; or times the number of the mask's elements."""
    sizes = self.shape[: self.sparse_dim()]
    ours, theirs = (coo.number(one._indices(), sizes) for one in (self, mask))
    ordered = theirs.sort()[0]
    first, last = (torch.searchsorted(ordered, ours, right=right) for right in (False, True))
    count = last - first if accumulate_matches else (last > first)
    values = self._values()
    factor = count.view(-1, *[1] * (values.dim() - 1)).to(values.dtype)
    return coo.make(self._indices().clone(), values * factor, self.shape, self.is_coalesced())


def _at_blocks(dense: Tensor, mask: Tensor) -> Tensor:
    """What a dense tensor holds at the places of a compressed one, laid out as its values."""
    batch = compressed.members(mask).compressed.dim() - 1
    high, wide = compressed.blocksize(mask) or (1, 1)
    above, beside = compressed.grid(mask)
    tiles = dense.reshape(
        *dense.shape[:batch], above, high, beside, wide, *dense.shape[batch + 2 :]
    )
    tiles = tiles.transpose(batch + 1, batch + 2)
    return tiles[tuple(compressed.places(mask).unbind())].reshape(mask.values().shape)


def mask_compressed(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places of a compressed tensor; of a csr tensor those that both have."""
    if mask.layout not in compressed.LAYOUTS:
        raise RuntimeError(
            f"sparse_mask: expected a mask of a compressed layout, but got {mask.layout}"
        )
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask: expected self and mask of one size, but got {tuple(self.shape)} and "
            f"{tuple(mask.shape)}"
        )
    if self.layout in compressed.LAYOUTS:
        if (self.layout, mask.layout) != (torch.sparse_csr, torch.sparse_csr):
            raise RuntimeError(
                f"sparse_mask: a tensor of layout {self.layout} and a mask of layout {mask.layout} "
                "are not supported; make the tensor dense or COO"
            )
        ones = compressed.with_values(mask, torch.ones_like(mask.values()))
        return self.mul(ones).to(self.dtype)
    dense = self if self.layout == torch.strided else self.to_dense()
    bounds, plain, _ = compressed.members(mask)
    parts = Members(bounds.long(), plain.long(), _at_blocks(dense, mask))
    return compressed.make(parts, mask.shape, mask.layout)


register(COO, {"sparse_mask": sparse_mask, "_sparse_mask_projection": mask_projection})
register(COMPRESSED, {"sparse_mask": mask_compressed})
