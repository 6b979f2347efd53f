"""Random numbers: one Philox generator a device, whose state is 16 bytes: seed and offset."""

from collections.abc import Iterable

import torch

from torch_tpu import _C
from torch_tpu.tpu.devices import Device, _get_device_index, _is_in_bad_fork, device_count


def _get_generator(device: Device) -> torch.Generator:
    """Returns a device's default generator."""
    return _C.default_generator(_get_device_index(device, optional=True))


def get_rng_state(device: Device = "tpu") -> torch.Tensor:
    """Returns a device's state: 16 uint8 on the CPU, an unsigned seed and a signed offset."""
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Returns the state of each device."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "tpu") -> None:
    """Sets a device's state to one that get_rng_state gave.

    Raises RuntimeError unless it is 16 uint8 on the CPU.
    """
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the state of each device, in their order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator; nothing if there is no device."""
    if not _is_in_bad_fork() and device_count():
        _get_generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator, without opening a plugin; `torch.manual_seed` calls this."""
    _C.manual_seed_all(int(seed) % 2**64)


def seed() -> None:
    """Seeds the current device's generator with a number that cannot be foreseen."""
    if device_count():
        _get_generator(None).seed()


def seed_all() -> None:
    """Seeds every device's generator with one number that cannot be foreseen."""
    if device_count():
        manual_seed_all(_get_generator(0).seed())


def initial_seed() -> int:
    """Returns the seed of the current device's generator."""
    return _get_generator(None).initial_seed()
