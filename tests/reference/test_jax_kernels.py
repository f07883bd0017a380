"""Law: with its Pallas kernels the emitted JAX module gives the outside judge's logits as it does without; they lie beside
it, those that it calls and no others, and running them leaves nothing there."""
import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from emitted import ENCODERS, FAMILIES, TOLERANCE, TRAINED, gap, judged, module_at, twin_of
from quick_jax import quickened
from tool import BINARY

KERNELS = Path(__file__).resolve().parents[2] / "reference" / "kernels"
ALWAYS = {"__init__.py", "blocks.py", "blocks.csv", "decode_attention.py"}
# Forms of a family that differ in nothing that a kernel is given are left to one of them.
CASES = [name for name in FAMILIES if name not in ENCODERS and name not in TRAINED and "__" not in name]


@pytest.mark.parametrize("name", CASES)
def test_kernels_give_the_judges_logits(tool, oracles, tmp_path, name):
    """Two prompts of several lengths, then eight tokens of each, by interpreted kernels."""
    twin = twin_of(tool, oracles, tmp_path, name, "native")
    module = quickened(module_at(twin / "reference" / "model.py"))
    params = module.load(twin, dtype=jnp.float32)
    module.use_kernels("interpret")
    calls = counted(module)
    ids, want = judged(oracles / name)
    lengths, rows = np.array([5, 3], np.int32), np.arange(2)
    cache = module.init_cache(2, ids.shape[1], jnp.float32)
    got, cache = module.prefill(params, cache, ids[:, :5], lengths)
    assert gap(got, want[rows, lengths - 1]) <= TOLERANCE
    for step in range(min(8, ids.shape[1] - 5)):
        got, cache = module.decode_step(params, cache, ids[rows, lengths + step], lengths + step)
        assert gap(got, want[rows, lengths + step]) <= TOLERANCE, step
    assert step == 7 and all(calls.values()), calls


FEW = """name: "few" require: RETRAIN step { use: "tpu-exact-native" }
step { keep_n_of_m { keep: 2 of: 3 along: "in" stride: 16 } where { path: "layers.*mlp.gate" } }
step { keep_n_of_m { keep: 1 of: 3 along: "in" stride: 16 } where { path: "layers.1.attn.q" } }
step { keep_n_of_m { keep: 1 of: 2 along: "out" stride: 1 } where { path: "layers.*mlp.up" } }"""


def test_weights_of_which_few_are_kept_are_read_packed(tool, oracles, tmp_path):
    """One in both layers, one in the second alone; the last lies too close for a kernel and stays dense."""
    done = tool.forge(oracles / "llama", FEW, tmp_path / "twin", "--to", "twin")
    assert done.code == 0, done
    module = quickened(module_at(tmp_path / "twin" / "reference" / "model.py"))
    dense = module.load(dtype=jnp.float32)
    ids, _ = judged(oracles / "llama")
    want = np.asarray(module.logits(dense, ids), np.float64)
    module.use_kernels("interpret")
    params = module.load(dtype=jnp.float32)
    packed = [[isinstance(layer[block][slot], module.nm_pack.Packed) for block, slot in (("mlp", "gate"), ("attn", "q"), ("mlp", "up"))]
              for layer in params["layers"]]
    assert packed == [[True, False, False], [True, True, False]]
    assert gap(module.logits(params, ids), want) <= TOLERANCE
    assert gap(module.logits(dense, ids), want) <= TOLERANCE    # kernels are used, and these are not packed
    cache = module.init_cache(2, ids.shape[1], jnp.float32)
    _, cache = module.prefill(params, cache, ids[:, :5], np.array([5, 5]))
    got, cache = module.decode_step(params, cache, ids[:, 5], np.array([5, 5]))
    assert gap(got, want[:, 5]) <= TOLERANCE
    module.use_kernels("off")
    assert gap(module.logits(params, ids), want) <= TOLERANCE   # packed, and no kernel


def test_decode_steps_compile_for_tpus_and_read_in_place():
    """Loops over layers with heads of 64, experts, packed weights: no cache and no such weight is copied on the way."""
    ran = subprocess.run([sys.executable, KERNELS.parents[1] / "bench" / "compile_twins.py", "--small", "v5e", "v6e"],
                         capture_output=True, text=True, env=os.environ | {"TWINFORGE": str(Path(BINARY).resolve())})
    assert ran.returncode == 0, ran.stderr[-2000:]
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    calls = {"heads of 64": 1, "experts": 4, "2 of 4 of down kept": 2}
    assert [(row["name"], row["chip"], row["kernels"]) for row in rows] == [
        (name, chip, count) for name, count in calls.items() for chip in ("v5e", "v6e")]
    assert [row for row in rows if row["outcome"] != "in place"] == []


def counted(module):
    """How often each kernel of a module is traced, by name; it grows."""
    calls = {}

    def count(holder, name):
        function = getattr(holder, name)

        def counting(*args, **options):
            calls[name] += 1
            return function(*args, **options)

        calls[name] = 0
        setattr(holder, name, counting)

    count(module.decode_attention, "kernel")
    if hasattr(module, "grouped_matmul"):
        count(module.grouped_matmul, "aligned")
    return calls


@pytest.mark.parametrize("name, more", [("llama", set()), ("mixtral", {"grouped_matmul.py"}), ("bert", None)])
def test_a_twin_has_the_kernels_that_it_calls(tool, oracles, tmp_path, name, more):
    done = tool.forge(oracles / name, "tpu-exact-native", tmp_path / "twin", "--to", "twin")
    assert done.code == 0, done
    folder = tmp_path / "twin" / "reference" / "kernels"
    there = {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}
    assert set(there) == (set() if more is None else ALWAYS | more)
    assert all(text == (KERNELS / file).read_bytes() for file, text in there.items())
    manifest = (tmp_path / "twin" / "twin.manifest.textproto").read_text()
    assert all(f'name: "reference/kernels/{file}"' in manifest for file in there)


def test_running_them_leaves_the_twin_as_it_was_and_one_changed_byte_is_found(tool, oracles, tmp_path):
    twin = tmp_path / "twin"
    done = tool.forge(oracles / "qwen3", "tpu-exact-portable", twin)
    assert done.code == 0, done
    said = {}
    for how in ("off", "interpret"):
        ran = subprocess.run([sys.executable, "reference/model.py", "--prompt-ids", "5,6,7", "--steps", "3", "--kernels", how],
                             cwd=twin, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        said[how] = ran.stdout
    assert said["off"] == said["interpret"] and said["off"].startswith("tokens: ")
    assert tool.json("prove", oracles / "qwen3", twin)["verdict"] == "PROVEN"
    path = twin / "reference" / "kernels" / "blocks.py"
    path.write_text(path.read_text().replace("LANES = 128", "LANES = 256"))
    said = tool.json("prove", oracles / "qwen3", twin, code=1)
    assert any(row["subject"] == "reference/kernels/blocks.py" for row in said["failures"]), said
