"""`torch.tpu.distributed`: what `torch.distributed` has no function for."""

from torch_tpu.tpu.modes import Setting, _Block

__all__ = ["spmd_safe"]


class spmd_safe(_Block):  # noqa: N801 (a function, or used as `with spmd_safe():`)
    """Declares that all ranks issue the same operators, in the same order.

    Then collectives are recorded among the other operators of their stream: in Fused mode they are
    part of its programs. Otherwise each is a launch of its own, on a stream of its group, so that
    none waits for what another rank does not do, be that printing a loss or saving a checkpoint.

    `with spmd_safe():` declares it for a block, on its own thread and autograd's; a call without
    `with` for the process, from now on.
    """

    _of_process = 0

    def __init__(self) -> None:
        super().__init__(Setting.SPMD_SAFE, 1)
        self._is_used = True
        self._before = spmd_safe._of_process
        self._choose(1)

    @staticmethod
    def _choose(value: int) -> None:
        spmd_safe._of_process = value
        Setting.SPMD_SAFE.set(value)

    def __enter__(self) -> None:
        self._choose(self._before)
        super().__enter__()
