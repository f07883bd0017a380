"""The StableHLO that JAX bundles: MLIR's parser and verifier, and XLA on the CPU, over several devices where a module asks for them."""
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

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


def options_for(text):
    """Without bfloat16, which they do not multiply, XLA's older emitters of loops: a third of the time to compile."""
    options = xla_client.CompileOptions()
    if "bf16" not in text:
        options.env_option_overrides = [("xla_cpu_use_fusion_emitters", False)]
    return options


class Compiled:
    """`run(*arrays)` gives the results of @main, as XLA computes them on the CPU."""

    def __init__(self, text):
        self.devices = jax.devices("cpu")[:1]
        self.loaded = self.devices[0].client.compile_and_load(text, self.devices, options_for(text))

    @jax.enable_x64(True)
    def run(self, *arrays):
        given = [jax.device_put(a, self.devices[0]) for a in arrays]
        out = self.loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(pieces[0]) for pieces in out]


class Split:
    """The same over the devices of a manifest's mesh, each holding its parts of arguments."""

    def __init__(self, text, said):
        (count,) = said["mesh"].values()
        self.devices = jax.devices("cpu")[:count]
        self.mesh = jax.sharding.Mesh(np.array(self.devices), tuple(said["mesh"]))
        self.said = said
        options = options_for(text)
        options.num_replicas, options.num_partitions = 1, count
        build = options.executable_build_options
        build.num_partitions = count
        build.use_spmd_partitioning = build.use_shardy_partitioner = True
        build.device_assignment = xla_client.DeviceAssignment.create(np.arange(count).reshape(1, count))
        self.loaded = self.devices[0].client.compile_and_load(text, self.devices, options)

    @jax.enable_x64(True)
    def run(self, *arrays):
        given = []
        for argument, array in zip(self.said["arguments"], arrays, strict=True):
            axes = [axis or None for axis in argument.get("split", [])]
            given.append(jax.device_put(array, jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*axes))))
        out = self.loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [self.whole(pieces, said["shape"]) for pieces, said in zip(out, self.said["results"], strict=True)]

    @staticmethod
    def whole(pieces, shape):
        pieces = [np.asarray(piece) for piece in pieces]
        split = [axis for axis, (n, size) in enumerate(zip(pieces[0].shape, shape)) if n != size]
        return np.concatenate(pieces, split[0]) if split else pieces[0]
