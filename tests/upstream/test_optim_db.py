"""Every optimizer of PyTorch's optim_db, on the device against the CPU."""

import copy
import io

import torch
from harness import LIMITS, DeviceTest, both, move, on_device, same, tensors
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db, optims
from torch.testing._internal.common_utils import parametrize

STEPS = 4
SHAPES = [(3, 2), (2, 3), (1, 4)]
CAPTURABLE = [info for info in optim_db if info.has_capturable_arg]
FUSED = [info for info in optim_db if "fused" in info.supported_impls]
FOREACH = [info for info in optim_db if "foreach" in info.supported_impls]
DIFFERENTIABLE = [info for info in optim_db if "differentiable" in info.supported_impls]
COMPLEX = [info for info in optim_db if info.supports_complex and info.name != "LBFGS"]
SPARSE = [info for info in optim_db if info.supports_sparse or info.only_supports_sparse_grads]
DENSE = [info for info in optim_db if not info.only_supports_sparse_grads]


def configurations(info, **flags):
    """The database's arguments of the constructor, each with these flags besides."""
    return [{**copy.deepcopy(one.kwargs), **flags} for one in info.optim_inputs_func("cpu")]


def parameters(dtype=torch.float32, shapes=SHAPES):
    torch.manual_seed(11)
    return [torch.nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]


def loss_of(params):
    """A bowl with a different slope in every place, which takes no random numbers."""
    total = 0.0
    for i, x in enumerate(params):
        flat = torch.view_as_real(x).reshape(-1) if x.is_complex() else x.reshape(-1)
        slopes = torch.linspace(0.5, 1.5 + i, flat.numel(), dtype=flat.dtype).to(flat.device)
        total = total + (slopes * (flat - 0.3) ** 2).sum()
    return total


def closure_of(params, optimizer, sparse=False):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(params)
        loss.backward()
        for x in params if sparse else ():
            x.grad = x.grad.to_sparse()
        return loss

    return closure


def train(optimizer, params, steps=STEPS, schedulers=(), sparse=False):
    """Takes some steps and returns the losses before them."""
    closure, losses = closure_of(params, optimizer, sparse), []
    for _ in range(steps):
        losses.append(optimizer.step(closure).detach())
        advance(schedulers, losses[-1])
    return losses


def advance(schedulers, loss):
    for one in schedulers:
        plateau = isinstance(one, torch.optim.lr_scheduler.ReduceLROnPlateau)
        one.step(loss) if plateau else one.step()


def run(info, params, kwargs, **options):
    optimizer = info.optim_cls(params, **kwargs)
    losses = train(optimizer, params, sparse=info.only_supports_sparse_grads, **options)
    return losses, params, state_of(optimizer)


def state_of(optimizer):
    """What an optimizer remembers of each parameter; the count of steps as a number."""
    found = []
    for _, state in sorted(optimizer.state_dict()["state"].items()):
        values = {k: v for k, v in sorted(state.items()) if k != "step"}
        found.append([float(state.get("step", 0)), values])
    return found


def single_of(info):
    """ASGD keeps its step sizes in float32 whatever the parameters are."""
    return LIMITS[torch.float32] if info.name == "ASGD" else {}


class TestOptimizers(DeviceTest):
    def compare(self, info, device, kwargs, params=None, place=None, limits=({}, {}), **options):
        """Runs an optimizer on both sides; `place` holds arguments for the device alone.

        limits: of the losses and of all else, where these are not their dtypes'.
        """
        host = params or parameters()
        if info in FOREACH and not any(kwargs.get(flag) for flag in ("fused", "differentiable")):
            kwargs.setdefault("foreach", True)  # the device's default; it rounds differently
        there = move(host, device)
        expected = run(info, host, copy.deepcopy(kwargs), **options)
        actual = run(info, there, {**copy.deepcopy(kwargs), **(place or {})}, **options)
        same(actual[0], expected[0], **limits[0])
        same(actual[1], expected[1], **limits[1])
        if info.name == "LBFGS":
            return  # it remembers differences of what is nearly equal
        self.assertEqual([x[0] for x in actual[2]], [x[0] for x in expected[2]])
        for got, want in zip(actual[2], expected[2], strict=True):
            self.assertEqual(sorted(got[1]), sorted(want[1]))
            for name, value in want[1].items():
                if not isinstance(value, torch.Tensor) or value.dim():
                    same(got[1][name], value, **limits[1])
                else:  # a number of its own, which may stay on the CPU
                    self.assertEqual(got[1][name].cpu(), value)

    @optims(optim_db)
    def test_every_input(self, device, dtype, optim_info):
        for kwargs in configurations(optim_info):
            self.compare(optim_info, device, kwargs)

    @optims(DENSE)
    def test_one_by_one(self, device, dtype, optim_info):
        flags = {"foreach": False} if optim_info in FOREACH else {}
        for kwargs in configurations(optim_info, **flags):
            self.compare(optim_info, device, kwargs)

    @optims(FUSED)
    def test_fused(self, device, dtype, optim_info):
        for kwargs in configurations(optim_info, fused=True):
            self.compare(optim_info, device, kwargs)

    @optims(CAPTURABLE)
    @parametrize("foreach", [False, True])
    def test_capturable(self, device, dtype, optim_info, foreach):
        for one in optim_info.optim_inputs_func("cuda"):
            kwargs = {k: v for k, v in one.kwargs.items() if k != "capturable"}
            plain = {k: unpacked(v) for k, v in kwargs.items()} | {"foreach": foreach}
            place = move(kwargs, device) | {"capturable": True}
            self.compare(optim_info, device, plain, place=place)

    @optims(FUSED)
    def test_fused_capturable(self, device, dtype, optim_info):
        if optim_info in CAPTURABLE:
            place = {"lr": torch.tensor(0.01, device=device), "capturable": True, "fused": True}
            self.compare(optim_info, device, {"lr": 0.01, "foreach": False}, place=place)
        else:
            place = {"lr": torch.tensor(0.01, device=device), "fused": True}
            self.compare(optim_info, device, {"lr": 0.01, "foreach": False}, place=place)

    @optims(DIFFERENTIABLE)
    def test_differentiable(self, device, dtype, optim_info):
        """Gradients of what a step makes, for the parameters and their gradients."""

        def work(given):
            leaves = [x.detach().requires_grad_() for x in given]
            slopes = [torch.full_like(x, 0.3 + i).requires_grad_() for i, x in enumerate(leaves)]
            params = [x.clone() for x in leaves]
            optimizer = optim_info.optim_cls(params, lr=0.05, differentiable=True)
            for _ in range(2):
                for x, slope in zip(params, slopes, strict=True):
                    x.grad = slope * slope
                optimizer.step()
            total = sum((x * x).sum() for x in params)
            return params, torch.autograd.grad(total, leaves + slopes)

        both(work, parameters(), device)

    @optims(DENSE)
    def test_groups_and_schedulers(self, device, dtype, optim_info):
        for schedulers in optim_info.scheduler_inputs:
            results = []
            for place in ("cpu", device):
                params = move(parameters(), place)
                groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}]
                optimizer = optim_info.optim_cls(
                    groups if optim_info.supports_param_groups else params, lr=0.01
                )
                made = [one(optimizer) for one in schedulers]
                results.append([train(optimizer, params, 3, made), params])
            same(results[1], results[0])

    @optims(optim_db)
    def test_state_dict(self, device, dtype, optim_info):
        """Going on from a state that was saved, here or on the CPU, is going on."""
        sparse = optim_info.only_supports_sparse_grads
        for kwargs in configurations(optim_info)[:2]:
            host, there = parameters(), move(parameters(), device)
            pair = [optim_info.optim_cls(x, **copy.deepcopy(kwargs)) for x in (host, there)]
            for optimizer, params in zip(pair, (host, there), strict=True):
                train(optimizer, params, 2, sparse=sparse)
            file = io.BytesIO()
            torch.save(pair[1].state_dict(), file)
            file.seek(0)
            sources = [
                pair[1].state_dict(),
                copy.deepcopy(pair[1]).state_dict(),
                torch.load(file),
                copy.deepcopy(pair[0].state_dict()),
            ]
            again = [[torch.nn.Parameter(x.detach().clone()) for x in there] for _ in sources]
            expected = train(pair[0], host, 2, sparse=sparse), host
            for params, source in zip(again, sources, strict=True):
                optimizer = optim_info.optim_cls(params, **copy.deepcopy(kwargs))
                optimizer.load_state_dict(copy.deepcopy(source))
                for state in optimizer.state.values():
                    for name, x in state.items():
                        if isinstance(x, torch.Tensor) and name != "step":
                            assert x.device == torch.device(device), name
                same((train(optimizer, params, 2, sparse=sparse), params), expected)

    @optims(COMPLEX, dtypes=[torch.complex64])
    def test_complex(self, device, dtype, optim_info):
        for flags in ({}, {"foreach": False}):
            self.compare(optim_info, device, flags, parameters(dtype))

    @optims(DENSE, dtypes=[torch.float64, torch.bfloat16])
    def test_other_dtypes(self, device, dtype, optim_info):
        limits = (single_of(optim_info) if dtype == torch.float64 else {},) * 2
        self.compare(optim_info, device, {}, parameters(dtype), limits=limits)

    @optims([info for info in DENSE if info.name != "Muon"])
    def test_odd_shapes(self, device, dtype, optim_info):
        """A number, nothing, and parameters of two dtypes in one group."""
        params = parameters(shapes=[(), (3,)]) + parameters(torch.float64, [(2, 2)])
        if optim_info.name == "LBFGS":
            params = params[:2]
        elif optim_info.name != "Adafactor":  # which divides by the number of elements
            params += parameters(shapes=[(2, 0)])
        limits = LIMITS[torch.float32], single_of(optim_info)  # the losses are sums of all
        self.compare(optim_info, device, {}, params, limits=limits)

    @optims(SPARSE)
    def test_sparse_gradients(self, device, dtype, optim_info):
        kwargs, schedulers = optim_info.metadata_for_sparse

        def work(place):
            params = move(parameters(shapes=[(5, 3)]), place)
            optimizer = optim_info.optim_cls(params, **kwargs)
            made = [one(optimizer) for one in schedulers]
            for rows in ([0, 2, 2], [4], [1, 3, 0]):
                ids = torch.tensor(rows, device=place)
                optimizer.zero_grad()
                picked = torch.nn.functional.embedding(ids, params[0], sparse=True)
                loss = (picked - 0.5).square().sum()
                loss.backward()
                assert params[0].grad.is_sparse
                optimizer.step()
                advance(made, loss.detach())
            return params

        same(work(device), work("cpu"))

    @optims(FUSED)
    def test_scaled_gradients(self, device, dtype, optim_info):
        """A step whose gradients overflowed is left out, without a look at them."""

        def work(place):
            params = move(parameters(), place)
            optimizer = optim_info.optim_cls(params, lr=0.1, fused=True)
            scaler = torch.amp.GradScaler(torch.device(place).type, init_scale=4.0)
            for bad in (False, True, False):
                optimizer.zero_grad()
                scaler.scale(loss_of(params)).backward()
                if bad:
                    params[0].grad.fill_(torch.inf)
                scaler.step(optimizer)
                scaler.update()
            return params, scaler.get_scale()

        same(work(device), work("cpu"))

    @optims(optim_db)
    def test_errors(self, device, dtype, optim_info):
        for error in optim_info.optim_error_inputs_func("cpu", dtype):
            given = error.optimizer_error_input
            params = [torch.nn.Parameter(torch.ones(2, 3, device=device))]
            params = params if given.params is None else with_gradients(given.params, device)
            if issubclass(error.error_type, Warning):
                with self.assertWarnsRegex(error.error_type, error.error_regex):
                    optim_info.optim_cls(params, **given.kwargs)
                continue
            with self.assertRaisesRegex(error.error_type, error.error_regex):
                optimizer = optim_info.optim_cls(params, **given.kwargs)
                assert error.error_on is OptimizerErrorEnum.STEP_ERROR
                optimizer.step()


def unpacked(value):
    """Numbers in place of tensors that hold one."""
    if isinstance(value, tuple):
        return tuple(unpacked(x) for x in value)
    return value.item() if isinstance(value, torch.Tensor) else value


def with_gradients(tree, device):
    moved = move(tree, device)
    for x, y in zip(tensors(moved), tensors(tree), strict=True):
        if y.grad is not None:
            x.grad = move(y.grad, device)
    return moved


on_device(TestOptimizers, globals())
