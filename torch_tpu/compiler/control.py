"""Control flow: branches and loops that are part of a captured graph.

While a graph is captured nothing has a value, so that no branch can be chosen. Instead each branch,
and the body of each loop, is captured by itself, and what becomes part of the graph is a region
(core/graph/region.h): both branches, or the loop. Outside of captures the implementations that
PyTorch has for every device do.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._higher_order_ops.associative_scan import (
    associative_scan_op,
    generic_associative_scan,
)
from torch._higher_order_ops.cond import cond_op, cond_op_dense
from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from torch._higher_order_ops.map import map_dense, map_impl
from torch._higher_order_ops.scan import scan_op, scan_op_dense
from torch._higher_order_ops.while_loop import (
    while_loop_dense,
    while_loop_op,
    while_loop_stack_output_op,
)
from torch.utils import _pytree as pytree

from torch_tpu.compiler import flex, regions
from torch_tpu.compiler.flex import AUTOCAST
from torch_tpu.compiler.regions import IF, WHILE


def install() -> None:
    """Registers what control flow does on `tpu`; once, when Dynamo is imported.

    Operators within a branch or a loop are cast by autocast, as anywhere; the branch is not.
    What checkpoints compute again draws the same random numbers by generators that PyTorch hands to
    a graph and to its backward.
    """
    from torch._functorch._aot_autograd import utils
    from torch._higher_order_ops import triton_kernel_wrap
    from torch._ops import _higher_order_ops

    key = DispatchKey.PrivateUse1
    cond_op.py_impl(key)(_cond)
    while_loop_op.py_impl(key)(_while_loop)
    while_loop_stack_output_op.py_impl(key)(_while_loop_stack_output)
    scan_op.py_impl(key)(_scan)
    map_impl.py_impl(key)(_map)
    associative_scan_op.py_impl(DispatchKey.AutogradPrivateUse1)(_associative_scan)
    flex_attention.py_impl(key)(flex.attention)
    flex_attention_backward.py_impl(key)(flex.backward)
    triton_kernel_wrap.triton_kernel_wrapper_mutation.py_impl(key)(_triton)
    triton_kernel_wrap.triton_kernel_wrapper_functional.py_impl(key)(_triton)
    flex_attention.py_impl(AUTOCAST)(flex.with_autocast)
    for operator in _higher_order_ops.values():
        if AUTOCAST not in operator.py_kernels:
            operator.fallthrough(AUTOCAST)
    if hasattr(utils, "register_graphsafe_rng_device_type"):  # from PyTorch 2.13 on
        utils.register_graphsafe_rng_device_type("tpu")


def check_results(graph: fx.GraphModule, leaves: Sequence[Any]) -> None:
    """Raises NotImplementedError where a result is a number that only a launch will know."""
    nodes = pytree.tree_leaves(graph.graph.output_node().args[0])
    for node, one in zip(nodes, leaves, strict=True):
        number = isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.SymInt)
        if number and isinstance(one, torch.Tensor):
            raise NotImplementedError("a result is a number of Python's that a loop changes")


def _as_tensor(x: Any) -> torch.Tensor:
    """Within a loop a number of Python's is a tensor."""
    return x if isinstance(x, torch.Tensor) else torch.tensor(x)


def _cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
    if not isinstance(pred, torch.Tensor) or not regions.capturing():
        return cond_op_dense(pred, true_fn, false_fn, operands)
    specs: list[Any] = []

    def record(written: list[int]) -> Any:
        recorder = regions.Recorder("torch.cond")

        def run(branch: Callable[..., Any]) -> list[Any]:
            values = list(operands)
            for i in written:
                values[i] = operands[i].clone()
            leaves, spec = pytree.tree_flatten(branch(*values))
            specs.append(spec)
            return leaves + [values[i] for i in written]

        shapes = recorder.body(lambda: run(true_fn), [], operands)
        others = recorder.body(lambda: run(false_fn), [], operands)
        if [one is None for one in shapes] != [one is None for one in others]:
            raise NotImplementedError("torch.cond: a result of one branch is None in the other")
        chosen = regions.held(pred.reshape(()).to(torch.bool))
        results = recorder.record(IF, [chosen], shapes)
        own = len(results) - len(written)
        return results[:own], results[own:]

    return pytree.tree_unflatten(regions.with_writes(operands, record), specs[0])


def _while_loop(
    cond_fn: Any,
    body_fn: Any,
    carried_inputs: Any,
    additional_inputs: Any,
    stack_output: bool = False,
    mutated_arg_indices: str = "",
) -> Any:
    if not regions.capturing():
        return while_loop_dense(cond_fn, body_fn, carried_inputs, additional_inputs, stack_output)
    name = "torch.while_loop"
    if stack_output:
        raise NotImplementedError(
            f"{name}: gradients need what each step made, and how many steps there are is not "
            "known while the loop is compiled"
        )
    own = len(carried_inputs)

    def record(written: list[int]) -> Any:
        recorder = regions.Recorder(name)
        carried = [*map(_as_tensor, carried_inputs), *(additional_inputs[i] for i in written)]

        def run(function: Callable[..., Any], values: Sequence[Any]) -> tuple[Any, list[Any]]:
            others = list(additional_inputs)
            for i, one in zip(written, values[own:], strict=True):
                others[i] = one
            return function(*values[:own], *others), [others[i] for i in written]

        def step(*values: torch.Tensor) -> list[Any]:
            results, others = run(body_fn, values)
            return [*results, *others]

        held = [regions.held(one) for one in carried]
        recorder.body(lambda *values: [run(cond_fn, values)[0]], held, additional_inputs, pure=True)
        results = recorder.record(WHILE, held, recorder.body(step, held, additional_inputs))
        return results[:own], results[own:]

    return regions.with_writes(additional_inputs, record)


def _while_loop_stack_output(
    cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any
) -> Any:
    return _while_loop(cond_fn, body_fn, carried_inputs, additional_inputs, stack_output=True)


def _scan(combine_fn: Any, init: Any, xs: Any, additional_inputs: Any) -> Any:
    if not regions.capturing() or not xs or xs[0].shape[0] < 2:
        return scan_op_dense(combine_fn, init, xs, additional_inputs)
    return regions.loop("scan", lambda *values: combine_fn(*values, *additional_inputs), init, xs)


def _map(f: Any, xs: Any, pos_args: Any) -> Any:
    if not regions.capturing() or not xs or xs[0].shape[0] < 2:
        return map_dense(f, xs, pos_args)
    specs: list[Any] = []

    def step(*values: torch.Tensor) -> list[Any]:
        leaves, spec = pytree.tree_flatten(f(*values, *pos_args))
        specs.append(spec)
        return leaves

    return pytree.tree_unflatten(regions.loop("map", step, [], xs), specs[0])


def _associative_scan(combine_fn: Any, xs: Any, additional_inputs: Any) -> Any:
    """Ordinary operators, whose gradients are right for every function.

    PyTorch's own gradients of it are so only for functions of one tensor.
    """
    return generic_associative_scan(combine_fn, xs, additional_inputs=additional_inputs)


def _triton(*, kernel_idx: int, **_: Any) -> Any:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel = getattr(kernel_side_table.get_kernel(kernel_idx), "fn", None)
    name = getattr(kernel, "__name__", "a kernel")
    raise NotImplementedError(
        f"{name}: Triton has no compiler for tpu; write it with PyTorch's operators, which "
        "torch.compile makes one program of, or give its torch.library.custom_op an implementation "
        "for tpu (register_kernel)"
    )
