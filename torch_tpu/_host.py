"""Which operators run on the host, and why; and how each other operator runs."""

import warnings
from collections import Counter
from collections.abc import Iterator

import torch

from torch_tpu import _decompose, _decompositions
from torch_tpu.tpu.modes import HostFallback, Setting

ON_HOST: dict[str, tuple[str, ...]] = {
    "Block-wise scales of 8-bit floats have no decomposition yet.": (
        "_scaled_mm_v2",
        "_scaled_mm_v2.out",
    ),
    "Lists the coordinates of a sparse tensor's diagonals one by one.": ("_spdiags",),
    "Checks a sparse tensor's indices, where a program asks for that.": (
        "_validate_compressed_sparse_indices",
    ),
}
"""Overloads without a path on the device, by the reason; they are counted when they run."""

OTHER_TENSORS: dict[str, tuple[str, ...]] = {
    "Computes on quantised tensors, by libraries of the CPU.": (
        "quantized_gru.data",
        "quantized_gru.data_legacy",
        "quantized_gru.input",
        "quantized_gru.input_legacy",
        "quantized_lstm.data",
        "quantized_lstm.data_legacy",
        "quantized_lstm.input",
        "quantized_lstm.input_legacy",
    ),
    "Packs or reads weights in a CPU library's own layout.": (
        "_convert_weight_to_int4pack_for_cpu",
        "_dyn_quant_matmul_4bit",
        "_dyn_quant_pack_4bit_weight",
        "_weight_int4pack_mm_for_cpu",
        "mkldnn_rnn_layer",
        "mkldnn_rnn_layer_backward",
        "to_mkldnn",
    ),
    "Is reached from CPU kernels alone.": (
        "_compute_linear_combination",
        "_compute_linear_combination.out",
        "_cummax_helper",
        "_cummin_helper",
        "_nested_compute_contiguous_strides_offsets",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_slow_conv2d_backward.grad_input",
        "from_file",
    ),
    "Serves PyTorch's own tests and tracing.": (
        "_foobar",
        "_functional_assert_async.msg",
        "_fused_sdp_choice",
        "_make_dep_token",
        "_test_functorch_fallback",
        "_test_optional_filled_intlist",
        "_test_optional_floatlist",
        "_test_optional_intlist",
    ),
}
"""Overloads about tensors or libraries that this device does not have, by what these are."""


_counts: Counter[str] = Counter()
_warned: set[str] = set()


def counts() -> dict[str, int]:
    """Returns how often each operator ran on the host."""
    return dict(_counts)


def reset_counts() -> None:
    """Starts them anew; who was warned of an operator is not warned again."""
    _counts.clear()


def announce(name: str) -> None:
    """Counts that an operator is about to run on the host, and says or refuses it as was chosen."""
    policy = HostFallback(Setting.HOST_FALLBACK.now())
    _counts[name] += 1
    if policy is HostFallback.ERROR:
        raise NotImplementedError(
            f"{name} has no path on device 'tpu', and running it on the host is refused "
            "(TORCH_TPU_HOST_FALLBACK=error); move the tensors with .cpu(), or allow it with "
            "torch.tpu.host_fallback = 'warn'"
        )
    if policy is HostFallback.WARN and name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"{name} has no path on device 'tpu' and runs on the host, with a synchronisation and "
            "two copies; TORCH_TPU_HOST_FALLBACK=silent hides this",
            stacklevel=2,
        )


def named(table: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Returns the reason for each qualified overload name of a table."""
    return {f"aten::{name}": reason for reason, names in table.items() for name in names}


def _has(name: str, *keys: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(name, key) for key in keys)


def paths() -> Iterator[tuple[str, str]]:
    """Yields each overload of ATen that the CPU computes, and how this device does.

    "row": by the op table, or by a kernel of the glue; "composite": PyTorch composes it of others;
    "own": by a decomposition of this package; "decomposed": by one of PyTorch's; "none": on the
    host.
    """
    own = _decompositions.table()
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::"):
            continue
        if name in own:
            yield name, "own"
        elif _has(name, "PrivateUse1"):
            yield name, "row"
        elif _has(
            name,
            "CompositeImplicitAutograd",
            "CompositeExplicitAutograd",
            "CompositeExplicitAutogradNonFunctional",
        ):
            yield name, "composite"
        elif _decompose.lookup(name) is not None:
            yield name, "decomposed"
        elif _has(name, "CPU"):
            yield name, "none"
