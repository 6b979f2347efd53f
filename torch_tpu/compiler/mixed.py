"""Graphs that have tensors on the host as well: what is computed where.

Numbers that a script keeps in tensors on the CPU (an optimizer's steps, a learning rate) are sent
to the device, the small ones of a dtype together, and what is computed of them for the device is
part of its program. What the graph returns or writes on the host is computed there, too, so that
nobody waits for the device. Only what is made of device tensors, and returned on the host or
written there, is fetched.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import fx

from torch_tpu._agreement.operators import tensors_of

HOST = torch.device("cpu")
aten = torch.ops.aten


class UnsupportedError(Exception):
    """Such a graph is run operator by operator; says why."""


class Sent(NamedTuple):
    """A host value that the device needs: which, and where it is in what is sent."""

    node: fx.Node
    pack: int  # which of the tensors that are sent
    at: int  # which element; -1: it is sent alone


def values_of(node: fx.Node) -> list[torch.Tensor]:
    """The tensors that a node is."""
    return tensors_of([node.meta.get("val")])


def is_mixed(graph: fx.GraphModule) -> bool:
    """Whether tensors of a graph are on the host, and others are not."""
    found = {one.device.type for node in graph.graph.nodes for one in values_of(node)}
    return "cpu" in found and len(found) > 1


class Division:
    """A graph in two: `host` and `device`, which are graphs of their own.

    Raises UnsupportedError where it cannot be divided.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        nodes = graph.graph.nodes
        self._graph = graph
        self._inputs = [node for node in nodes if node.op == "placeholder"]
        results: Any = graph.graph.output_node().args[0]
        self._results = list(results)
        # Copies of the device's values to inputs on the host: target and source.
        self._written: dict[fx.Node, tuple[fx.Node, fx.Node]] = {}
        self._on_host, self._drawn = self._classify()
        self._sent = self._find_sent()
        self._packs = 1 + max((one.pack for one in self._sent), default=-1)
        self._device = next(
            one.device for node in nodes for one in values_of(node) if one.device.type != "cpu"
        )
        self.device = self._make_device()
        self.host = self._make_host()

    def _classify(self) -> tuple[set[fx.Node], set[fx.Node]]:
        """The nodes that need nothing of the device, and those of them that random numbers make."""
        on_host: set[fx.Node] = set()
        drawn: set[fx.Node] = set()
        for node in self._graph.graph.nodes:
            found = [one.device.type for one in values_of(node)]
            if node.op == "output" or "cpu" not in found:
                continue
            draws = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            if all(one in on_host or not values_of(one) for one in node.all_input_nodes):
                on_host.add(node)
                if draws or any(one in drawn for one in node.all_input_nodes):
                    drawn.add(node)
            elif draws:
                raise UnsupportedError(f"{node.target} draws on the host, like a device's tensor")
            elif node.target is aten.copy_.default:
                target, source = node.args[:2]
                assert isinstance(target, fx.Node) and isinstance(source, fx.Node)
                if target in self._inputs and target.meta["val"].device.type == "cpu":
                    self._written[node] = target, source
        return on_host, drawn

    def _find_sent(self) -> list[Sent]:
        """Inputs and random values that a program's results depend on."""
        needed: set[fx.Node] = set()
        todo = [node for node in self._graph.graph.nodes if self._is_programs(node)]
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                if node not in self._drawn:
                    todo += node.all_input_nodes
        packs: dict[tuple[torch.dtype, bool], int] = {}
        sizes: list[int] = []
        sent = []
        for node in self._graph.graph.nodes:
            is_leaf = node in self._drawn or node.op in ("placeholder", "get_attr")
            if node not in needed or node not in self._on_host or not is_leaf:
                continue
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor):
                raise UnsupportedError(f"{node.target} makes several random tensors on the host")
            alone = value.dim() > 0
            pack = len(sizes)
            if not alone:
                pack = packs.setdefault((value.dtype, node in self._drawn), pack)
            if pack == len(sizes):
                sizes.append(0)
            sent.append(Sent(node, pack, -1 if alone else sizes[pack]))
            sizes[pack] += 1
        return sent

    def _is_programs(self, node: fx.Node) -> bool:
        return node not in self._on_host and node.op != "output" and bool(values_of(node))

    def _make_device(self) -> fx.GraphModule:
        """The device's: its own inputs, then what is sent; its own results."""
        graph = fx.Graph()
        env: dict[fx.Node, Any] = {}
        for node in self._inputs:
            if node not in self._on_host:
                env[node] = graph.node_copy(node)
        packs = [graph.placeholder(f"sent_{i}") for i in range(self._packs)]
        for one in self._sent:
            pack = packs[one.pack]
            env[one.node] = (
                pack if one.at < 0 else graph.call_function(aten.select.int, (pack, 0, one.at))
            )
        for node in self._graph.graph.nodes:
            is_hosts = node.target is aten.copy_.default and node in self._on_host
            if node in env or node.op in ("placeholder", "output") or is_hosts:
                continue
            if node in self._written:
                env[node] = env[self._written[node][1]]
                continue
            if node in self._drawn or any(one not in env for one in node.all_input_nodes):
                continue  # only the host needs it
            env[node] = graph.node_copy(node, lambda one: env[one])
            if env[node].kwargs.get("device") is not None:
                env[node].update_kwarg("device", self._device)
        results = [one for one in self._results if self._is_device_result(one)]
        results += [source for _, source in self._written.values()]
        graph.output([env[one] for one in results])
        return self._module_of(graph)

    def _module_of(self, graph: fx.Graph) -> fx.GraphModule:
        made = fx.GraphModule(self._graph, graph)
        made.graph.eliminate_dead_code()
        made.recompile()
        return made

    def _is_device_result(self, one: Any) -> bool:
        return isinstance(one, fx.Node) and one not in self._on_host and bool(values_of(one))

    def _make_host(self) -> fx.GraphModule:
        """The host's: all inputs; what is sent of random numbers, then its own results."""
        graph = fx.Graph()
        env: dict[fx.Node, Any] = {}
        for node in self._graph.graph.nodes:
            is_hosts = node.op == "placeholder" or node in self._on_host or not values_of(node)
            if is_hosts and node.op != "output" and all(one in env for one in node.all_input_nodes):
                env[node] = graph.node_copy(node, lambda one: env[one])
        drawn = [env[one.node] for one in self._sent if one.node in self._drawn]
        results = [one for one in self._results if not self._is_device_result(one)]
        graph.output((drawn, [env[one] if isinstance(one, fx.Node) else one for one in results]))
        return self._module_of(graph)

    def _send(self, values: dict[Sent, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Sends values to the device, each pack of them in one tensor."""
        packed: dict[int, list[torch.Tensor]] = {}
        for one, value in values.items():
            packed.setdefault(one.pack, []).append(value)
        alone = {one.pack for one in values if one.at < 0}
        return {
            pack: (group[0] if pack in alone else torch.stack(group)).to(self._device)
            for pack, group in packed.items()
        }

    def __call__(self, values: list[Any], launch: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
        """Computes the results; `launch` is what is made of `self.device`, of a list."""
        of = dict(zip(self._inputs, values, strict=True))

        def value_of(node: fx.Node) -> Any:
            return of[node] if node.op == "placeholder" else getattr(self.host, str(node.target))

        early = {one: value_of(one.node) for one in self._sent if one.node not in self._drawn}
        sent = self._send(early)  # before the host's graph writes its inputs
        drawn, on_host = self.host(*values)
        late = [one for one in self._sent if one.node in self._drawn]
        sent |= self._send(dict(zip(late, drawn, strict=True)))
        own = [of[node] for node in self._inputs if node not in self._on_host]
        from_device = iter(launch([*own, *(sent[pack] for pack in range(self._packs))]))
        from_host = iter(on_host)
        results = tuple(self._result(one, from_device, from_host) for one in self._results)
        for (target, _), value in zip(self._written.values(), from_device, strict=True):
            of[target].copy_(value)
        return results

    def _result(self, one: Any, from_device: Iterator[Any], from_host: Iterator[Any]) -> Any:
        if not self._is_device_result(one):
            return next(from_host)
        result = next(from_device)
        return result if one.meta["val"].device.type != "cpu" else result.to(HOST)
