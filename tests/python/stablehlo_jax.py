"""Runs exported StableHLO on JAX: of each folder, main.mlir on inputs.npz; writes results.npz.

usage: .venv-bench/bin/python tests/python/stablehlo_jax.py FOLDER..
An array of inputs.npz is named by the place of its parameter. The versioned bytecode of the text
must give the same, but for what its CHLO is expanded to.
"""

import importlib.util
import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import numpy as np
from jax._src import compiler, xla_bridge
from jaxlib import xla_client

SOURCE = Path(__file__).parents[2] / "torch_tpu/export/bytecode.py"


def portable(text):
    """Bytecode, by the package's own module, which needs no PyTorch."""
    spec = importlib.util.spec_from_file_location("bytecode", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.portable(text)
    assert made.startswith(b"ML\xefR")
    return made


def run(code, arrays):
    """The results of a program."""
    backend = xla_bridge.get_backend("cpu")
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1, backend=backend)
    devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
    program = backend.compile_and_load(code, devices, options)
    with jax.enable_x64(True):
        results = program.execute_sharded([jax.device_put(one) for one in arrays])
        parts = results.disassemble_into_single_device_arrays()
        return [np.asarray(one[0]) for one in parts]


def main():
    """Runs each folder's program."""
    for folder in map(Path, sys.argv[1:]):
        with np.load(folder / "inputs.npz") as file:
            arrays = [file[str(i)] for i in range(len(file.files))]
        results = run((folder / "main.mlir").read_text(), arrays)
        again = run(portable((folder / "main.mlir").read_text()), arrays)
        for a, b in zip(results, again, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=str(folder))
        named = {str(i): one for i, one in enumerate(results)}
        np.savez(folder / "results.npz", **named)


main()
