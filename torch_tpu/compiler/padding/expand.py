"""Operators without a rule as graphs of those that have one."""

from typing import Any

from torch import fx
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from torch_tpu._decompose import direct
from torch_tpu.compiler.padding.dims import RefusedError


def expanded(node: fx.Node) -> tuple[fx.GraphModule, list[fx.Node]]:
    """What an operator's decomposition computes, and the nodes that are its arguments.

    Its results are a list. Raises RefusedError where there is no decomposition, or it has to know
    values.
    """
    function = direct(node.target)
    if function is None:
        raise RefusedError(f"{node.target} has no rule for sizes that vary")
    leaves, spec = pytree.tree_flatten((list(node.args), dict(node.kwargs)))
    given = [one for one in leaves if isinstance(one, fx.Node)]
    values = [one.meta.get("val") for one in given]
    mode = detect_fake_mode(values)
    if mode is None:
        raise RefusedError(f"{node.target} has no rule for sizes that vary")

    def work(*args: Any) -> list[Any]:
        nodes = iter(args)
        filled = [next(nodes) if isinstance(one, fx.Node) else one for one in leaves]
        args_, kwargs = pytree.tree_unflatten(filled, spec)
        made = function(*args_, **kwargs)
        return list(made) if isinstance(made, tuple | list) else [made]

    try:
        with mode:
            return make_fx(work)(*values), given
    except Exception as error:  # whatever it trips over where it is given no values
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        reason = (
            f"{node.target} has no rule for sizes that vary; its decomposition fails with {why}"
        )
        raise RefusedError(reason) from error
