"""Every module of PyTorch's module_db: what it computes, on the device against the CPU."""

import copy

import torch
from harness import (
    DeviceTest,
    gradients,
    move,
    noncontiguous,
    on_device,
    raises_like,
    same,
    tensors,
)
from module_cases import ERRORS, IN_PLACE, OTHERS, QUICK, cases, few, run
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db, modules

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
EVALUATION = [info for info in module_db if info.train_and_eval_differ]


def on(device, case):
    module, args, kwargs = case
    return [copy.deepcopy(module).to(device), *move([args, kwargs], device)]


def in_format(case):
    """The case with its images and weights in the channels-last formats, or None."""

    def convert(x):
        if not isinstance(x, torch.Tensor) or x.dim() not in FORMATS:
            return x
        copied = x.detach().contiguous(memory_format=FORMATS[x.dim()])
        return copied.requires_grad_(x.requires_grad)

    module, args, kwargs = case
    module = copy.deepcopy(module)
    for parameter in module.parameters():
        parameter.data = convert(parameter.data)
    return [module, *torch.utils._pytree.tree_map(convert, [args, kwargs])]


def second_gradients(case):
    module, args, kwargs = case
    held = [args, kwargs, list(module.parameters())]
    found = gradients(module(*args, **kwargs), held, create_graph=True)
    return gradients(found, held)


class TestModules(DeviceTest):
    def check(self, case, device, work=run, strides=False):
        expected = work(on("cpu", case))
        same(work(on(device, case)), expected, strides)

    def check_alike(self, case, device, work=run):
        """As `check`, but what the CPU refuses is to be refused here."""
        try:
            expected = work(on("cpu", case))
        except RuntimeError as error:
            with raises_like(error):
                work(on(device, case))
        else:
            same(work(on(device, case)), expected)

    @modules(module_db, allowed_dtypes=QUICK)
    def test_forward_and_backward(self, device, dtype, module_info, training):
        for case in few(module_info, dtype, training):
            self.check(case, device)

    @modules(module_db, allowed_dtypes=QUICK)
    def test_every_input(self, device, dtype, module_info, training):
        for case in cases(module_info, dtype, training):
            self.check(case, device)

    @modules(module_db, allowed_dtypes=QUICK)
    def test_no_gradients(self, device, dtype, module_info, training):
        def forward(case):
            module, args, kwargs = case
            with torch.no_grad():
                plain = module(*args, **kwargs)
            with torch.inference_mode():
                inference = module(*args, **kwargs)
            assert not any(x.requires_grad for x in tensors(plain))
            assert all(x.is_inference() for x in tensors(inference))
            return plain, inference

        for case in few(module_info, dtype, training, 3):
            self.check(case, device, forward)

    @modules(IN_PLACE, allowed_dtypes=QUICK)
    def test_in_place(self, device, dtype, module_info, training):
        def forward(case):
            module, (x, *args), kwargs = case
            module.inplace = True
            target = x * 1
            outputs = module(target, *args, **kwargs)
            assert outputs is target
            return target, gradients(outputs, x)

        for case in cases(module_info, dtype, training):
            self.check(case, device, forward)

    @modules(ERRORS, allowed_dtypes=QUICK)
    def test_errors(self, device, dtype, module_info, training):
        for error in module_info.module_error_inputs_func(
            module_info, device=device, dtype=dtype, requires_grad=False, training=training
        ):
            made, forward = error.module_error_input.constructor_input, None
            if error.error_on is ModuleErrorEnum.FORWARD_ERROR:
                forward = error.module_error_input.forward_input
                module = module_info.module_cls(*made.args, **made.kwargs).to(device)
            in_debug = torch.tpu.set_eager_mode("debug")  # where indices are checked
            with in_debug, self.assertRaisesRegex(error.error_type, error.error_regex):
                if forward is None:
                    module_info.module_cls(*made.args, **made.kwargs)
                else:
                    module(*forward.args, **forward.kwargs)

    @modules(module_db, allowed_dtypes=QUICK)
    def test_noncontiguous(self, device, dtype, module_info, training):
        """Operands with gaps give what the CPU gives for those without: its own may crash."""
        for case in few(module_info, dtype, training):
            module, args, kwargs = on(device, case)
            for parameter in module.parameters():
                parameter.data = noncontiguous(parameter.data)
            same(run([module, *noncontiguous([args, kwargs])]), run(on("cpu", case)))

    @modules(module_db, allowed_dtypes=QUICK)
    def test_memory_format(self, device, dtype, module_info, training):
        def forward(case):
            module, args, kwargs = in_format(case)
            return module(*args, **kwargs)

        for case in few(module_info, dtype, training):
            if any(x.dim() in FORMATS for x in tensors(case[1:])):
                # What the CPU does with a lone image depends on its size and its threads.
                alone = any(x.dim() > case[1][0].dim() for x in case[0].parameters())
                keeps = module_info.module_memformat_affects_out and not alone
                self.check(case, device, forward, strides=keeps)

    @modules(module_db, allowed_dtypes=OTHERS)
    def test_other_dtypes(self, device, dtype, module_info, training):
        for case in few(module_info, dtype, training):
            self.check_alike(case, device)

    @modules([info for info in module_db if info.supports_gradgrad], allowed_dtypes=[torch.float64])
    def test_second_gradients(self, device, dtype, module_info, training):
        for case in few(module_info, dtype, training):
            self.check_alike(case, device, second_gradients)


on_device(TestModules, globals())
