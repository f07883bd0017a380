"""The second opinion: programs that JAX lowers, as text for the tool, and what JAX's own compile says of each.

    through_jax.py FOLDER     writes FOLDER/<name>.mlir and FOLDER/answers.json

In a process of its own: JAX keeps the compiler's library loaded, and the tests' process should not.
"""
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import compile_layers  # noqa: E402  (sets the library's environment)

OPTIONS = {"xla_msa_enable": "false"}
COLLECTIVE = re.compile(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


def answer(lowered, options=OPTIONS):
    try:
        compiled = lowered.compile(compiler_options=options)
    except Exception as error:  # the compiler's refusal
        return {"error": str(error)}
    text, memory = compiled.as_text(), compiled.memory_analysis()
    cycles, _, _ = compile_layers.cycles_of(text)
    entry = re.search(r"entry_computation_layout=\{\((.*?)\)->(.*?)\}(?:,|\n|$)", text.split("\n")[0])
    arrays = re.compile(r"\w+\[[\d,]*\](?:\{[^{}]*\})?")
    return {"cycles": cycles, "argument_bytes": memory.argument_size_in_bytes, "output_bytes": memory.output_size_in_bytes,
            "alias_bytes": memory.alias_size_in_bytes, "temp_bytes": memory.temp_size_in_bytes,
            "layouts": arrays.findall(re.sub(r"/\*.*?\*/", "", entry.group(1))),
            "collectives": len(COLLECTIVE.findall(text))}


class Programs:
    """One topology each."""

    def __init__(self, generation):
        self.compiler = compile_layers.Compiler(generation)
        self.jax = self.compiler.jax

    def lower(self, function, *args):
        return self.jax.jit(function).lower(*args)

    def layer(self, model, phase, rewrite):
        return self.compiler.lower_layer(model, phase, rewrite)

    def split(self, generation, parts):
        """A feed-forward whose width lies on `parts` devices: each gives a share of the sum."""
        from jax.experimental import topologies
        from jax.sharding import NamedSharding, PartitionSpec
        topology = topologies.get_topology_desc(platform="tpu", topology_name=compile_layers.TOPOLOGY[generation])
        mesh = self.jax.sharding.Mesh(topology.devices[:parts], ("tp",))
        bf16 = self.jax.numpy.bfloat16
        array = lambda shape, *spec: self.jax.ShapeDtypeStruct(shape, bf16, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
        args = array((8, 1024)), array((1024, 4096), None, "tp"), array((4096, 1024), "tp", None)
        whole = NamedSharding(mesh, PartitionSpec())
        return self.jax.jit(lambda x, up, down: self.jax.nn.relu(x @ up) @ down, out_shardings=whole).lower(*args)


def main(folder):
    v6e, v5e = Programs("v6e"), Programs("v5e")
    array, jnp, lax = v6e.compiler.array, v6e.jax.numpy, v6e.jax.lax
    programs = {
        "matmul": ("v6e", v6e.lower(lambda x, w: x @ w, array((8, 4096)), array((4096, 4096)))),
        "odd": ("v6e", v6e.lower(lambda x, y: jnp.concatenate([x, y], -1), array((3, 80)), array((3, 7), "float32"))),
        "bytes": ("v5e", v5e.lower(lambda x, w: x @ w.T, v5e.compiler.array((33, 600), "int8"), v5e.compiler.array((50, 600), "int8"))),
        "decode": ("v6e", v6e.layer("llama1b", "decode8", "src")),
        "oriented": ("v6e", v6e.layer("llama1b", "decode8", "w_in_out")),
        "v5e": ("v5e", v5e.layer("llama1b", "decode8", "src")),
        "experts": ("v6e", v6e.layer("256,8,2,80,512,8,gated", "decode8", "fused")),
        "prefill": ("v6e", v6e.layer("512,8,2,80,1000,1,gated", "prefill", "src")),
        "loop": ("v6e", v6e.lower(lambda x, w: lax.scan(lambda x, w: (x @ w, None), x, w)[0], array((8, 512)), array((6, 512, 512)))),
        "split": ("v6e", v6e.split("v6e", 4)),
        "too large": ("v6e", v6e.lower(lambda x, w: x @ w, array((100000, 400000)), array((400000, 400)))),
    }
    answers = {}
    for name, (generation, lowered) in programs.items():
        (folder / f"{name}.mlir").write_text(lowered.as_text())
        answers[name] = {"topology": compile_layers.TOPOLOGY[generation], **answer(lowered)}
    (folder / "answers.json").write_text(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
