"""Every change that this package makes to PyTorch itself, and why there is no other way.

Each patch lets all other devices' tensors through to the original untouched.
"""

import contextlib
import functools
import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from types import CodeType, ModuleType
from typing import Any
from unittest import mock

import torch
from torch import _compile, fx
from torch._utils import _import_dotted_name

from torch_tpu import _agreement, _exchange
from torch_tpu.tpu import tensors


def apply() -> None:
    """Applies all patches; called once, when the device is added."""
    _patch_repr()
    _exchange.apply()
    _patch_storage()
    _patch_flex_attention()
    _patch_associative_scan()
    _patch_device_hint()
    _patch_default_tensor_type()
    _patch_untraced_references()


def _patch_repr() -> None:
    """Prints a tensor from one copy on the CPU.

    PyTorch formats element by element with small operators, which it knows to be slow on devices
    that compile; but its list of such devices (`_str_intern` in torch/_tensor_str.py) is fixed.
    """
    from torch import _tensor_str

    original = _tensor_str._str_intern

    def str_intern(inp: torch.Tensor, *, tensor_contents: str | None = None) -> str:
        if tensor_contents is None and _prints_from_host(inp):
            host = torch.autograd.forward_ad.unpack_dual(inp)[0].detach().cpu()
            plain = type(inp) in (torch.Tensor, torch.nn.Parameter)
            prefix = "tensor(" if plain else f"{type(inp).__name__}("
            tensor_contents = _tensor_str._tensor_str(host, len(prefix))
        return str(original(inp, tensor_contents=tensor_contents))

    _tensor_str._str_intern = str_intern


def _prints_from_host(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "tpu"
        and tensor.layout == torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch._is_functional_tensor(tensor)
        and not isinstance(tensor, torch._subclasses.FakeTensor)
        and tensor.numel() > 0  # last: a traced size may depend on data
    )


def _patch_storage() -> None:
    """Keeps storages from being read or written through an address that is a handle.

    These methods of `UntypedStorage` use the pointer of any device but CUDA's as if it were the
    host's; `pickle` and `torch.save` in the old format need the first two.
    """
    cls = torch.UntypedStorage
    write_file, set_from_file = cls._write_file, cls._set_from_file
    byteswap, getitem = cls.byteswap, cls.__getitem__

    def write_file_from_host(self: torch.UntypedStorage, *args: Any) -> Any:
        return write_file(self.cpu() if self.device.type == "tpu" else self, *args)

    def set_from_file_through_host(self: torch.UntypedStorage, *args: Any) -> Any:
        if self.device.type != "tpu":
            return set_from_file(self, *args)
        host = torch.UntypedStorage(self.nbytes())
        set_from_file(host, *args)
        return self.copy_(host)

    def byteswap_on_host(self: torch.UntypedStorage, dtype: torch.dtype) -> None:
        host = self.cpu() if self.device.type == "tpu" else self
        byteswap(host, dtype)
        if host is not self:
            self.copy_(host)

    def getitem_unless_slice(self: torch.UntypedStorage, index: Any) -> Any:
        if self.device.type == "tpu" and isinstance(index, slice):
            raise NotImplementedError(
                "a part of a tpu storage cannot be a storage of its own; slice the tensor instead"
            )
        return getitem(self, index)

    changes = {
        "_write_file": write_file_from_host,
        "_set_from_file": set_from_file_through_host,
        "byteswap": byteswap_on_host,
        "__getitem__": getitem_unless_slice,
    }
    for name, method in changes.items():
        setattr(cls, name, method)


def _patch_flex_attention() -> None:
    """Lets `flex_attention` take tensors of the device, for which its eager form works as it is.

    Its list of devices (`_validate_device` in torch/nn/attention/flex_attention.py) is a constant.
    """
    from torch.nn.attention.flex_attention import _validate_device

    devices = frozenset({"cuda", "cpu", "xpu", "hpu", "mps"})
    _replace_constant(_validate_device, devices, devices | {"tpu"})


def _patch_associative_scan() -> None:
    """Lets `associative_scan` run as it is called by default, pointwise, on the device.

    Its list of devices for that (in torch/_higher_order_ops/associative_scan.py) is a constant.
    """
    from torch._higher_order_ops import associative_scan

    _replace_constant(associative_scan, ("cuda", "xpu"), ("cuda", "xpu", "tpu"))


def _replace_constant(function: Any, old: object, new: object) -> None:
    """Replaces a constant of a function's code, and of the functions within.

    Dynamo traces these functions; it would not trace one of ours around them.
    """

    def replaced(code: CodeType) -> CodeType:
        constants = (
            replaced(one) if isinstance(one, CodeType) else new if one == old else one
            for one in code.co_consts
        )
        return code.replace(co_consts=tuple(constants))

    function.__code__ = replaced(function.__code__)


def _patch_device_hint() -> None:
    """Lets results lie in memory as the CPU's do, where devices differ.

    Shape functions in Python take every tensor of the meta device for one of CUDA
    (`device_hint` in torch/_meta_registrations.py); those that `_agreement` asks about stand for
    ours.
    """
    from torch import _meta_registrations

    original = _meta_registrations.device_hint

    def device_hint(tensor: Any) -> str:
        return "cpu" if _agreement.asks_meta() else str(original(tensor))

    _meta_registrations.device_hint = device_hint


def _patch_default_tensor_type() -> None:
    """Lets older scripts make `torch.tpu.FloatTensor` the default, as `torch.cuda.FloatTensor` is.

    PyTorch knows a fixed list of such types (torch/csrc/utils/tensor_types.cpp), and advises what
    is done here: to choose dtype and device apart. Another type takes the device back, if it was
    a type that chose it.
    """
    original = torch.set_default_tensor_type
    is_ours = False

    @functools.wraps(original)
    def set_default_tensor_type(t: Any, /) -> None:
        nonlocal is_ours
        kind: Any = _import_dotted_name(t) if isinstance(t, str) else t
        if isinstance(kind, tensors.TensorType):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("tpu")
            is_ours = True
            return
        original(kind)
        if is_ours:
            torch.set_default_device(None)
            is_ours = False

    torch.set_default_tensor_type = set_default_tensor_type


def _patch_untraced_references() -> None:
    """Spares the first operator the import of Dynamo, which takes longer than that of PyTorch.

    PyTorch's shape functions of elementwise operators are Python, and marked as what Dynamo must
    not trace (`_disable_dynamo` in torch/_compile.py); the mark imports Dynamo at the first call,
    unless it finds itself resolved. As long as nobody has imported Dynamo, nobody traces.
    """
    mark = _compile._disable_dynamo(_decorated).__code__
    modules = [one for name, one in sys.modules.items() if name.startswith("torch._refs")]
    for function in [value for module in modules for value in vars(module).values()]:
        while (inner := _decorated(function)) is not None:
            if getattr(function, "__code__", None) is mark:
                _call_unmarked(inner)
            function = inner


def _decorated(function: Any) -> Any:
    """What a decorator's function calls, if it knows it as `fn`; `__wrapped__` may name another."""
    free = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return function.__closure__[free.index("fn")].cell_contents if "fn" in free else None


def _call_unmarked(function: Any) -> None:
    """Resolves a function's mark to itself for now, and as PyTorch does once Dynamo is there."""

    def call(*args: Any, **kwargs: Any) -> Any:
        disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
        if disable is None:
            return function(*args, **kwargs)
        function.__dynamo_disable = disable(function, wrapping=False)
        return function.__dynamo_disable(*args, **kwargs)

    function.__dynamo_disable = call


@contextlib.contextmanager
def no_code_generators() -> Iterator[None]:
    """Within it, AOTAutograd compiles a graph of ours without importing Inductor.

    PyTorch imports Inductor's code generators and lowerings (3 s) to add to the cache's key what
    passes other devices have registered, for Triton's kernels in the graph, and to number the
    graph's writes; a graph of ours has the last of the three. There is no setting for it.
    """
    from torch._inductor import codecache

    generators = mock.patch.object(codecache, "init_backend_registration", lambda: None)
    wrapper = _stand_in(
        "torch._inductor.codegen.wrapper",
        user_defined_triton_kernel_transitive_closure_source_code=_of_triton_kernel,
    )
    matcher = _stand_in(
        "torch._inductor.pattern_matcher",
        compute_mutation_region_ids=_number_writes,
        same_mutation_regions=_between_the_same_writes,
    )
    with generators, wrapper, matcher:
        yield


def _of_triton_kernel(kernel: Any) -> Any:
    from torch._inductor.codegen import wrapper

    return wrapper.user_defined_triton_kernel_transitive_closure_source_code(kernel)


class _StandIn(ModuleType):
    """A module with a few functions of ours; whoever wants others of it gets the module itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # as the import system asks whether it is a package
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _stand_in(name: str, **functions: Callable[..., Any]) -> Iterator[None]:
    """Within it, a module that was not imported yet is one of these functions, by name."""
    module = _StandIn(name)
    module.__dict__.update(functions)
    held = sys.modules.setdefault(name, module)
    try:
        yield
    finally:
        if held is module and sys.modules.get(name) is module:
            del sys.modules[name]


def _number_writes(graph: fx.Graph) -> None:
    """Gives each node the number of nodes up to it that may write what they are given."""
    count = 0
    for node in graph.nodes:
        if node.op == "call_function" and _may_write(node.target):
            count += 1
        node.meta["mutation_region_id"] = count


def _may_write(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return bool(target._schema.is_mutable)
    return isinstance(target, torch._ops.HigherOrderOperator)


def _between_the_same_writes(a: fx.Node, b: fx.Node) -> bool:
    return bool(a.meta["mutation_region_id"] == b.meta["mutation_region_id"])


def inductor_for_others(
    is_ours: Callable[[fx.GraphModule, Sequence[Any]], bool], ours: Callable[..., Any]
) -> None:
    """Has our backend compile graphs of the device where a script names backend "inductor".

    The default backend has a hook, this name has none, and Inductor's own way for the device needs
    JAX.
    """
    wrapper: Any = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    @functools.wraps(original)
    def compiled(self: Any, graph: fx.GraphModule, inputs: Sequence[Any], **settings: Any) -> Any:
        if is_ours(graph, inputs):
            return ours(graph, inputs)
        return original(self, graph, inputs, **settings)

    wrapper.__call__ = compiled


# Of torch.tpu: what Dynamo asks once, while it traces; and what may change, so that it asks again
# before each call.
_FOLDED = ("device_count", "get_device_name", "is_available", "is_bf16_supported")
_GUARDED = ("current_device", "is_initialized")


def functions_in_graphs(trace_rules: ModuleType) -> None:
    """Has Dynamo treat functions of `torch.tpu` as it does those of `torch.cuda`.

    Its tables have the functions' names, and nothing to add to them.
    """
    rule = trace_rules.TorchInGraphFunctionVariable
    rules = trace_rules.manual_torch_name_rule_map
    for name in (*_FOLDED, *_GUARDED, "synchronize", "stream"):
        rules[f"torch_tpu.tpu.{name}"] = rule
    for name in ("current_stream", "amp.autocast"):
        rules[f"torch_tpu.tpu.{name}"] = trace_rules.UserFunctionVariable
    trace_rules.get_torch_obj_rule_map.cache_clear()  # it may have been asked already


def functions_folded(variables: ModuleType) -> None:
    """Tells it which of them are numbers or words to a graph; see functions_in_graphs."""
    from torch_tpu import tpu

    for name in (*_FOLDED, *_GUARDED):
        variables.constant_fold_functions[getattr(tpu, name)] = None
    for name in _GUARDED:
        variables.constant_fold_functions_need_guards[getattr(tpu, name)] = None


def no_names_for_logs(symbolic_convert: ModuleType) -> None:
    """Keeps Dynamo from reading whole source files for names that it only logs.

    It finds out in which function each traced call stands (`get_line_of_code_header` in
    torch/_dynamo/symbolic_convert.py) before it knows whether anybody logs that.
    """
    original = symbolic_convert.get_funcname

    def get_funcname(filename: str, lineno: int) -> str | None:
        from torch._dynamo import output_graph

        logs: Any = (output_graph.trace_call_log, symbolic_convert.trace_source_log)
        logged = any(log.isEnabledFor(logging.DEBUG) for log in logs)
        return original(filename, lineno) if logged else None

    symbolic_convert.get_funcname = get_funcname  # type: ignore[attr-defined]


def layers_traced_once() -> AbstractContextManager[Any]:
    """While AOTAutograd traces a graph whose layers are calls of one, does not trace them to check.

    `invoke_subgraph` traces its graph at each call, only to see whether that writes its arguments,
    which compiler/layers.py has made sure of; it has no setting for that.
    """
    hop = torch.ops.higher_order.invoke_subgraph
    return mock.patch.object(hop, "_supports_training_input_mutation", True)


@contextlib.contextmanager
def worlds_of_threads(world: Any) -> Iterator[None]:
    """Within the block, each thread has process groups of its own, which `world` keeps.

    PyTorch keeps a process's groups in one object of `torch.distributed`, through which its tests
    that run ranks as threads replace them, too; there is no function for it.
    """
    from torch._C import _distributed_c10d
    from torch.distributed import distributed_c10d

    isolate: Callable[[bool], None] = vars(_distributed_c10d)["_set_thread_isolation_mode"]
    isolate(True)
    try:
        with mock.patch.object(distributed_c10d, "_world", world):
            yield
    finally:
        isolate(False)


class _Handlers(threading.local):
    """DTensor's own ways of operators, apart for each thread."""

    def __init__(self, shared: dict[Any, Any]) -> None:
        self.now = dict(shared)


@contextlib.contextmanager
def handlers_of_threads() -> Iterator[None]:
    """Within the block, `loss_parallel` and `context_parallel` are about one thread each.

    They change a dictionary of DTensor's dispatcher, or replace it, which is the process's; C++
    reads that, too.
    """
    from torch_tpu.integrations import _imports

    with contextlib.ExitStack() as stack:

        def divide(module: str) -> None:
            dispatcher: Any = sys.modules[module].DTensor._op_dispatcher
            handlers, kind = _Handlers(dispatcher._custom_op_handlers), type(dispatcher)
            now = property(lambda _: handlers.now, lambda _, given: setattr(handlers, "now", given))
            dispatcher.__class__ = type("OpDispatcher", (kind,), {"_custom_op_handlers": now})
            stack.callback(setattr, dispatcher, "__class__", kind)

        watcher = _imports.Watcher(divide)
        watcher.watch(["torch.distributed.tensor"])
        stack.callback(watcher.stop)
        yield


def groups_of_processes() -> None:
    """Gives groups of backend "tpu" a default backend, and a time-out of 10 minutes.

    PyTorch looks for a registered backend among several ("cpu:gloo,tpu:tpu") by its name in
    capitals, and so finds none (`_new_process_group_helper` in
    torch/distributed/distributed_c10d.py); and it knows of NCCL alone that a time-out that nobody
    gave is 10 minutes (`_get_default_timeout`). `monitored_barrier` is Gloo's alone by name, while
    a group of ours has a Gloo to do it.
    """
    import torch.distributed
    from torch.distributed import distributed_c10d as c10d

    make_group, default_timeout = c10d._new_process_group_helper, c10d._get_default_timeout

    @functools.wraps(make_group)
    def new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        made = make_group(*args, **kwargs)
        group = made[0]
        if isinstance(group, c10d.ProcessGroup) and torch.device("tpu") in group._device_types:
            group._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
        return made

    def get_default_timeout(backend: Any) -> timedelta:
        # Asked for only where no backend is named, since it may open the plugin.
        asks = backend == "undefined"
        named = torch._C._get_accelerator().type if asks else str(backend)
        ours = "tpu" in named.replace(":", ",").split(",")
        return timedelta(minutes=10) if ours else default_timeout(backend)

    with_gloo = c10d.monitored_barrier

    @functools.wraps(with_gloo)
    def monitored_barrier(
        group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        found = c10d._get_default_group() if group is None else group
        if c10d._rank_not_in_group(group) or torch.device("tpu") not in found._device_types:
            with_gloo(group, timeout, wait_all_ranks)
            return
        backend: Any = found._get_backend(torch.device("tpu"))
        backend.monitored_barrier(timeout or backend.options._timeout, wait_all_ranks)

    c10d._new_process_group_helper = new_process_group_helper
    c10d._get_default_timeout = get_default_timeout
    c10d.monitored_barrier = torch.distributed.monitored_barrier = monitored_barrier
