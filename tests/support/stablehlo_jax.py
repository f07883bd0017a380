"""The StableHLO that JAX bundles: MLIR's parser and verifier, and XLA on the CPU."""
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from jax._src.interpreters import mlir
from jaxlib import xla_client
from jaxlib.mlir import ir


def parsed(text):
    """The module as MLIR prints it back, once every op has verified itself."""
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        assert module.operation.verify()
        return str(module)


class Compiled:
    """`run(*arrays)` gives the results of @main, as XLA computes them on the CPU."""

    def __init__(self, text, devices=1):
        options = xla_client.CompileOptions()
        build = options.executable_build_options
        build.num_partitions = devices
        options.num_partitions = devices
        if devices > 1:
            build.use_spmd_partitioning = True
            build.use_shardy_partitioner = True
            build.device_assignment = xla_client.DeviceAssignment.create(np.arange(devices).reshape(1, devices))
        self.devices = jax.devices("cpu")[:devices]
        self.loaded = self.devices[0].client.compile_and_load(text, self.devices, options)

    def run(self, *arrays):
        given = [jax.device_put(a, self.devices[0]) for a in arrays]
        out = self.loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(piece[0]) for piece in out]
