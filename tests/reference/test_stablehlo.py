"""Exported StableHLO computes the outside judge's logits: every checkpoint, as it is and as each library recipe makes it.

Sequences are ragged: row 0 is whole, row 1 begins with padding. A prefill, then eight decode steps with the cache.
"""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import stablehlo  # noqa: E402
import stablehlo_jax  # noqa: E402
from stablehlo_model import Exported  # noqa: E402
from tool import SHARED, Tool  # noqa: E402

NAMES = """llama llama__tied_bf16 llama__biases llama__llama3 llama__yarn llama__linear llama__dynamic mistral mistral__window qwen2
qwen3 gemma2 phi3 phi3__longrope mixtral mixtral__sharded_bf16 qwen3_moe gpt_oss deepseek_v3 gpt2 bert""".split()

RECIPES = {"": (), "tpu-exact-native": ("--to", "twin", "--kernel", "paged", "--shards", "2"),
           "tpu-exact-portable": ("--to", "hf", "--shards", "4")}

# Of the largest logit, in f32: the rounding of a few layers, as in tests/oracle.
TOLERANCE = 2e-5
PREFILL, STEPS, PADDING, CONTEXT = 5, 8, 2, 16


@pytest.fixture(scope="session")
def tool():
    return Tool()


@pytest.fixture(scope="session")
def oracles(tmp_path_factory):
    """Folder with one checkpoint per name: TWINFORGE_ORACLES, or made by the judge's own code."""
    made = os.environ.get("TWINFORGE_ORACLES")
    if made:
        return Path(made)
    out = tmp_path_factory.mktemp("oracles")
    done = subprocess.run([sys.executable, str(SHARED / "oracles" / "make_oracles.py"), str(out), *NAMES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def expected(folder):
    with safe_open(Path(folder) / "expected.safetensors", "np") as opened:
        return opened.get_tensor("input_ids").astype(np.int32), opened.get_tensor("logits").astype(np.float64)


def off(want, got):
    """Over the source's words: a padded vocabulary has more."""
    got = got.astype(np.float64)[..., : want.shape[-1]]
    assert got.shape == want.shape and np.isfinite(got).all()
    return np.abs(want - got).max() / np.abs(want).max()


def exported(tool, model, out, *words):
    done = tool("export", model, "--to", "stablehlo", "--out", out, *words)
    assert done.code == 0, done
    return out


def forged(tool, oracles, name, recipe, out):
    if not recipe:
        return oracles / name
    done = tool.forge(oracles / name, recipe, out, *RECIPES[recipe])
    assert done.code == 0, done
    return out


def check_generation(prefill, decode, ids, want, worst):
    """Row 0 from its first token, row 1 two places later."""
    starts = np.array([0, PADDING])
    tokens = ids[:, :PREFILL].copy()
    tokens[1] = np.concatenate([np.zeros(PADDING), ids[1, : PREFILL - PADDING]])
    logits, cache = prefill({"tokens": tokens, "starts": starts, "token_types": 0}, {})
    assert off(want[0, :PREFILL], logits[0]) <= worst
    assert off(want[1, : PREFILL - PADDING], logits[1, PADDING:]) <= worst
    for at in range(PREFILL, PREFILL + STEPS):
        tokens = np.stack([ids[0, at], ids[1, at - PADDING]])[:, None]
        logits, cache = decode({"tokens": tokens, "position": at, "starts": starts, "token_types": 0}, cache)
        assert off(want[0, at], logits[0, 0]) <= worst
        assert off(want[1, at - PADDING], logits[1, 0]) <= worst


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "bert"])
def test_xla_computes_the_judges_logits(tool, oracles, tmp_path, name, recipe):
    model = forged(tool, oracles, name, recipe, tmp_path / "twin")
    sizes = ("--batch", 2, "--context", CONTEXT, "--dtype", "f32")
    exported(tool, model, tmp_path / "prefill", *sizes, "--phase", "prefill", "--sequence", PREFILL)
    exported(tool, model, tmp_path / "decode", *sizes, "--phase", "decode")
    prefill = Exported(tmp_path / "prefill", "prefill", model, stablehlo_jax.Compiled)
    decode = Exported(tmp_path / "decode", "decode", model, stablehlo_jax.Compiled)
    check_generation(prefill, decode, *expected(oracles / name), TOLERANCE)
