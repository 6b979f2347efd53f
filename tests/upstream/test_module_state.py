"""Every module of PyTorch's module_db: made on, moved to, saved from and loaded on the device."""

import copy
import io
import pickle

import torch
from harness import DeviceTest, move, on_device, same, tensors
from module_cases import MAKE_ON_DEVICE, QUICK, build, cases, few, run, state
from torch.testing._internal.common_modules import TrainEvalMode, module_db, modules

TRAIN = TrainEvalMode.train_only


def saved(module, **kwargs):
    """The module after torch.save and torch.load."""
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False, **kwargs)


def kinds(module):
    return [x.dtype for x in tensors(state(module))]


class TestModuleState(DeviceTest):
    @modules(MAKE_ON_DEVICE, allowed_dtypes=[torch.float32, torch.float64], train_eval_mode=TRAIN)
    def test_made_on_the_device(self, device, dtype, module_info, training):
        made = module_info.module_inputs_func(
            module_info, device="cpu", dtype=dtype, requires_grad=False, training=training
        )
        inputs = [case.constructor_input for case in made if case.forward_input is not None]
        pairs = list(zip(inputs, cases(module_info, dtype), strict=True))
        for given, (host, args, kwargs) in pairs[:: max(1, len(pairs) // 3)]:
            parts = move([given.args, given.kwargs], device)
            there = build(module_info.module_cls, type(given)(*parts[0], **parts[1]), dtype, device)
            if not any(torch.nn.parameter.is_lazy(x) for x in there.parameters()):
                assert all(x.device == torch.device(device) for x in tensors(state(there)))
                assert kinds(there) == kinds(host)
            there.load_state_dict(host.state_dict())
            same(run([there, *move([args, kwargs], device)]), run([host, args, kwargs]))

    @modules(module_db, allowed_dtypes=QUICK, train_eval_mode=TRAIN)
    def test_moved_there_and_back(self, device, dtype, module_info, training):
        for module, _, _ in few(module_info, dtype, count=2):
            for x in module.parameters():
                x.grad = torch.ones_like(x)
            wanted = copy.deepcopy(state(module))
            there = module.to(device)
            same(state(there), wanted)
            same(
                [x.grad for x in there.parameters()],
                [torch.ones_like(x) for x in wanted[0].values()],
            )
            same(state(copy.deepcopy(there).cpu()), wanted, device="cpu")
            same(state(copy.deepcopy(there).double()), state(copy.deepcopy(there).cpu().double()))
            empty = copy.deepcopy(there).cpu().to_empty(device=device)
            assert all(x.device == torch.device(device) for x in tensors(state(empty)))

    @modules(module_db, allowed_dtypes=QUICK, train_eval_mode=TRAIN)
    def test_saved_and_loaded(self, device, dtype, module_info, training):
        for host, _, _ in few(module_info, dtype, count=1):
            module = copy.deepcopy(host).to(device)
            for again in (
                pickle.loads(pickle.dumps(module)),
                saved(module),
                saved(host, map_location=device),
                copy.deepcopy(module),
            ):
                same(state(again), state(host))
                assert repr(again) == repr(host)
            same(state(saved(module, map_location="cpu")), state(host), device="cpu")

    @modules(module_db, allowed_dtypes=QUICK, train_eval_mode=TRAIN)
    def test_state_dict(self, device, dtype, module_info, training):
        for host, _, _ in few(module_info, dtype, count=2):
            module = copy.deepcopy(host).to(device)
            with torch.no_grad():
                for x in module.parameters():
                    x.zero_()
            assert module.load_state_dict(host.state_dict()) == ([], [])
            same(state(module), state(host))
            other = copy.deepcopy(host)
            other.load_state_dict(module.state_dict(), assign=True)
            same(state(other), state(host))


on_device(TestModuleState, globals())
