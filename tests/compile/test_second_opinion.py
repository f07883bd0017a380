"""The second opinion on a twin: its emitted JAX code, compiled by JAX and by `compile --program`, beside its emitted StableHLO."""
import json
import subprocess
import sys

import pytest
from tool import BINARY, ROOT


@pytest.fixture(scope="module")
def emitted(library, tmp_path_factory):
    """Folder of the programs, and the cycles that JAX's own compile gives them."""
    folder = tmp_path_factory.mktemp("emitted")
    done = subprocess.run([sys.executable, ROOT / "tests" / "compile" / "emitted_step.py", BINARY, folder], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("what", ["layer", "step"])
def test_jax_and_the_tool_get_the_same_answer(tool, emitted, what):
    folder, by_jax = emitted
    ours = tool.json("compile", "--program", folder / f"{what}.mlir", "--topology", "v6e:2x2")["twin"]["modules"][0]
    assert ours["cycles"] == by_jax[what] > 0


def test_emitted_jax_and_emitted_stablehlo_are_one_layer(tool, emitted):
    """The same weights and caches, to the byte. Cycles differ by how each lays and writes the cache: docs/attainability.md has the ratio of each model."""
    folder, by_jax = emitted
    report = tool.json("compile", "--from-config", folder / "config.json", "--recipe", "tpu-exact-native", "--topology", "v6e:1x1", "--batch", "8", "--context", "2048")
    layer, = (row for row in report["twin"]["modules"] if row["kind"].startswith("layers"))
    ours = tool.json("compile", "--program", folder / "layer.mlir", "--topology", "v6e:2x2")["twin"]["modules"][0]
    large = lambda module: sorted(row["bytes"] for row in module["layouts"] if row["bytes"] > 1 << 20)
    assert sum(large(ours)) == sum(large(layer))  # load() takes apart what a bundle joins
    assert 0.8 <= ours["cycles"] / layer["cycles"] <= 1.5, (ours["cycles"], layer["cycles"])
