"""Every primitive and every block that carries state, written as StableHLO: XLA, and the evaluator of tests/support, give what
twinforge's own evaluator gives. MLIR parses and verifies every module."""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import stablehlo  # noqa: E402
import stablehlo_jax  # noqa: E402
import weight_programs  # noqa: E402
from tool import BINARY  # noqa: E402

WRITER = Path(BINARY).parents[1] / "tests" / "reference" / "stablehlo" / "write_cases"
# Of the largest value of a result: what f32 and bf16 leave of sums in another order.
TOLERANCE = {"f64": 1e-12, "f32": 3e-6, "bf16": 2**-8}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    done = subprocess.run([WRITER, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "cases.json").read_text())


def array(said):
    return np.array(said["values"]).reshape(said["shape"]).astype(weight_programs.DTYPES[said["dtype"]])


def run(module, make, inputs, cache):
    text = Path(module["file"]).read_text()
    given = []
    for argument in module["arguments"]:
        name = argument["name"]
        given.append(array(argument["value"]) if "value" in argument else cache[name] if argument["cache"] else inputs[name])
    return dict(zip(module["results"], make(text).run(*given), strict=True))


def check(name, want, got, dtype):
    got = np.asarray(got).astype(np.float64)
    want = want.astype(np.float64)
    assert got.shape == want.shape, name
    if dtype in TOLERANCE:
        assert np.abs(got - want).max() <= TOLERANCE[dtype] * np.abs(want).max(), (name, got, want)
    else:
        assert (got == want).all(), (name, got, want)


@pytest.mark.parametrize("make", [stablehlo_jax.Compiled, stablehlo.Module], ids=["xla", "evaluator"])
def test_what_is_written_computes_what_the_graph_does(cases, make):
    assert len(cases) > 70
    for case in cases:
        inputs = {name: array(said) for name, said in case["inputs"].items()}
        inputs["starts"] = np.zeros(2, np.int32)
        want = {name: array(said) for name, said in case["want"].items()}
        got = run(case["whole"], make, inputs, {})
        for name, value in want.items():
            check(case["name"], value, got[name], case["want"][name]["dtype"])
        if "decode" not in case:
            continue
        first, x = case["first"], inputs["x"]
        got = run(case["prefill"], make, {**inputs, "x": x[:, :first]}, {})
        check(case["name"], want["y"][:, :first], got["y"], "f32")
        for at in range(first, x.shape[1]):
            got = run(case["decode"], make, {**inputs, "x": x[:, at:at + 1], "position": np.array(at, np.int32)}, got)
            check(f"{case['name']} at {at}", want["y"][:, at:at + 1], got["y"], "f32")


def test_mlir_reads_every_module(cases):
    for case in cases:
        for phase in ("whole", "prefill", "decode"):
            if phase in case:
                stablehlo_jax.parsed(Path(case[phase]["file"]).read_text())
