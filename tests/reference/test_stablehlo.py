"""Exported StableHLO computes the outside judge's logits: every family, as it is and as each library recipe makes it.

Sequences are ragged: row 0 is whole, row 1 begins with padding. A prefill, then eight decode steps with the cache.
"""
import json
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
from stablehlo_model import Exported, stored_tensors  # noqa: E402
from tool import SHARED, Tool  # noqa: E402

FAMILIES = "llama mistral qwen2 qwen3 gemma2 phi3 mixtral qwen3_moe gpt_oss deepseek_v3 gpt2".split()
VARIANTS = "llama__tied_bf16 llama__biases llama__llama3 llama__yarn llama__linear mistral__window mixtral__sharded_bf16".split()

RECIPES = {"": (), "tpu-exact-native-decode": ("--to", "twin", "--kernel", "paged", "--shards", "2"),
           "tpu-exact-portable": ("--to", "hf", "--shards", "4")}

# Their angles follow the length of the whole sequence: what the judge computes at once is no generation of ours, nor of its own.
BY_LENGTH = ["llama__dynamic", "phi3__longrope"]

NAMES = [*FAMILIES, *VARIANTS, *BY_LENGTH, "bert"]

# Every family as every recipe makes it; of the variants, those whose weights a recipe treats otherwise.
PAIRS = [*((name, recipe) for name in FAMILIES for recipe in RECIPES), *((name, "") for name in VARIANTS),
         ("llama__tied_bf16", "tpu-exact-native-decode"), ("llama__biases", "tpu-exact-native-decode"), ("llama__biases", "tpu-exact-portable")]

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


def xla(text, said):
    return stablehlo_jax.Compiled(text)


def evaluator(text, said):
    return stablehlo.Module(text)


def generation(tool, model, out, make, *words):
    """Prefill and decode of the model, ready to run in f32."""
    sizes = ("--batch", 2, "--context", CONTEXT, "--dtype", "f32", *words)
    out.mkdir(exist_ok=True)
    exported(tool, model, out / "prefill", *sizes, "--phase", "prefill", "--sequence", PREFILL)
    exported(tool, model, out / "decode", *sizes, "--phase", "decode")
    return Exported(out / "prefill", "prefill", model, make), Exported(out / "decode", "decode", model, make)


@pytest.mark.parametrize("name, recipe", PAIRS)
def test_xla_computes_the_judges_logits(tool, oracles, tmp_path, name, recipe):
    model = forged(tool, oracles, name, recipe, tmp_path / "twin")
    check_generation(*generation(tool, model, tmp_path, xla), *expected(oracles / name), TOLERANCE)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", BY_LENGTH)
def test_a_whole_sequence(tool, oracles, tmp_path, name, recipe):
    model = forged(tool, oracles, name, recipe, tmp_path / "twin")
    ids, want = expected(oracles / name)
    exported(tool, model, tmp_path / "out", "--batch", 2, "--context", ids.shape[1], "--phase", "prefill", "--dtype", "f32")
    logits, _ = Exported(tmp_path / "out", "prefill", model, xla)({"tokens": ids, "starts": np.zeros(2)}, {})
    assert off(want, logits) <= TOLERANCE


@pytest.mark.parametrize("name", ["llama__biases", "gemma2", "gpt_oss", "deepseek_v3"])
def test_an_evaluator_of_its_own_does_too(tool, oracles, tmp_path, name):
    prefill, decode = generation(tool, oracles / name, tmp_path, evaluator)
    check_generation(prefill, decode, *expected(oracles / name), TOLERANCE)
    hooks = {"twinforge.attention", "twinforge.latent_attention", "twinforge.moe"}
    assert prefill.runs.composites and set(prefill.runs.composites) <= hooks


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_encoder(tool, oracles, tmp_path, recipe):
    """All tokens see each other, and none sees padding."""
    model = forged(tool, oracles, "bert", recipe, tmp_path / "twin")
    ids, want = expected(oracles / "bert")
    length = ids.shape[1]
    exported(tool, model, tmp_path / "out", "--batch", 2, "--context", length, "--phase", "prefill", "--dtype", "f32")
    run = Exported(tmp_path / "out", "prefill", model, xla)
    logits, cache = run({"tokens": ids, "starts": np.zeros(2), "token_types": 0}, {})
    assert cache == {} and off(want, logits) <= TOLERANCE
    save_file({"input_ids": ids[1:, :-PADDING].astype(np.int64)}, tmp_path / "ids.safetensors")
    done = tool("eval", oracles / "bert", "--inputs", tmp_path / "ids.safetensors", "--out", tmp_path / "short.safetensors", "--dtype", "f64")
    assert done.code == 0, done
    with safe_open(tmp_path / "short.safetensors", "np") as opened:
        short = opened.get_tensor("logits")
    tokens = np.concatenate([np.full((2, PADDING), 3), ids[:, :-PADDING]], axis=1)
    logits, _ = run({"tokens": tokens, "starts": np.full(2, PADDING), "token_types": 0}, {})
    assert off(short[0], logits[1, PADDING:]) <= TOLERANCE


@pytest.mark.parametrize("name", ["llama__tied_bf16", "mixtral__sharded_bf16", "deepseek_v3"])
def test_bf16_is_as_near_to_the_judge_as_the_evaluator_is(tool, oracles, tmp_path, name):
    """Computed in the type that it is stored in."""
    ids, want = expected(oracles / name)
    save_file({"input_ids": ids.astype(np.int64)}, tmp_path / "ids.safetensors")
    done = tool("eval", oracles / name, "--inputs", tmp_path / "ids.safetensors", "--out", tmp_path / "out.safetensors", "--dtype", "bf16")
    assert done.code == 0, done
    exported(tool, oracles / name, tmp_path / "mlir", "--batch", 2, "--context", ids.shape[1], "--phase", "prefill")
    run = Exported(tmp_path / "mlir", "prefill", oracles / name, xla)
    logits, _ = run({"tokens": ids, "starts": np.zeros(2)}, {})
    assert logits.dtype == run.weights["embed"].dtype != np.float32
    theirs = stored_tensors(tmp_path)["logits"].astype(np.float64)
    assert 0 < off(want, logits) <= 2 * off(want, theirs)


@pytest.mark.parametrize("name", ["llama", "mixtral", "deepseek_v3"])
def test_devices_that_split_the_weights(tool, oracles, tmp_path, name):
    model = forged(tool, oracles, name, "tpu-exact-native-decode", tmp_path / "twin")
    prefill, decode = generation(tool, model, tmp_path, stablehlo_jax.Split)
    assert prefill.said["mesh"] == {"model": 2}
    assert any("model" in argument.get("split", []) for argument in prefill.said["arguments"])
    check_generation(prefill, decode, *expected(oracles / name), TOLERANCE)


def test_logits_of_the_last_token(tool, oracles, tmp_path):
    ids, want = expected(oracles / "gpt_oss")
    exported(tool, oracles / "gpt_oss", tmp_path / "out", "--batch", 2, "--context", ids.shape[1], "--phase", "prefill", "--logits", "last",
             "--dtype", "f32")
    logits, _ = Exported(tmp_path / "out", "prefill", oracles / "gpt_oss", xla)({"tokens": ids, "starts": np.zeros(2)}, {})
    assert off(want[:, -1:], logits) <= TOLERANCE


def test_layers_that_are_stored_as_one(tool, oracles, tmp_path):
    recipe = 'name: "stacked" require: REASSOCIATED step { fuse_qkv { } } step { stack_layers { } }'
    done = tool.forge(oracles / "qwen3", recipe, tmp_path / "twin", "--to", "twin")
    assert done.code == 0, done
    prefill, decode = generation(tool, tmp_path / "twin", tmp_path, xla)
    assert any("layers.0-1" in argument["name"] for argument in decode.said["arguments"])
    check_generation(prefill, decode, *expected(oracles / "qwen3"), TOLERANCE)


def test_a_recipe_need_not_be_forged(tool, oracles, tmp_path):
    """The twin's weights are then programs over the source's tensors."""
    words = ("--recipe", "tpu-exact-native-decode", "--shards", 2)
    prefill, decode = generation(tool, oracles / "llama", tmp_path, stablehlo_jax.Split, *words)
    assert any("program" in argument for argument in prefill.said["arguments"])
    check_generation(prefill, decode, *expected(oracles / "llama"), TOLERANCE)


def test_few_weights_of_each_group(tool, oracles, tmp_path):
    """A product with them is a composite, computed over the weights with their zeros: as the twin that was forged."""
    recipe = tmp_path / "half.textproto"
    recipe.write_text('name: "half" require: RETRAIN step { keep_n_of_m { keep: 2 of: 4 along: "in" } where { path: "layers.*mlp.*down" } }')
    done = tool("forge", oracles / "llama", "--recipe", recipe, "--out", tmp_path / "twin", "--to", "twin", "--progress", "none")
    assert done.code == 0, done
    ids, _ = expected(oracles / "llama")
    inputs = {"tokens": ids[:, :PREFILL], "starts": np.zeros(2)}
    forged, _ = generation(tool, tmp_path / "twin", tmp_path / "dense", evaluator)
    hooked, _ = generation(tool, oracles / "llama", tmp_path / "hooked", evaluator, "--recipe", recipe)
    want, _ = forged(inputs, {})
    got, _ = hooked(inputs, {})
    assert off(want.astype(np.float64), got) <= TOLERANCE
    for module in (forged, hooked):
        assert module.runs.composites == {"twinforge.attention": 2, "twinforge.nm_matmul": 2}
        stablehlo_jax.parsed(module.text)


def test_a_chain_of_parts_is_the_whole(tool, oracles, tmp_path):
    """What precedes the layers, one layer of each kind, what follows: from tokens to logits, each layer with its own weights."""
    ids, want = expected(oracles / "llama")
    exported(tool, oracles / "llama", tmp_path / "out", "--batch", 2, "--context", ids.shape[1], "--phase", "prefill", "--parts")
    manifests = {}
    for path in (tmp_path / "out").glob("*.arguments.json"):
        said = json.loads(path.read_text())
        manifests[said["part"]] = (said, stablehlo_jax.Compiled(Path(str(path).replace(".arguments.json", ".mlir")).read_text()))
    assert set(manifests) == {"embedding", "layers.0", "head"} and manifests["layers.0"][0]["members"] == ["layers.0", "layers.1"]
    tensors = stored_tensors(oracles / "llama")
    hidden = None
    for part, layer in (("embedding", None), ("layers.0", 0), ("layers.0", 1), ("head", None)):
        said, compiled = manifests[part]
        given = []
        for argument in said["arguments"]:
            if argument["kind"] == "weight":
                given.append(tensors[argument["tensor"].replace("layers.0.", f"layers.{layer}.")])
            else:
                given.append({"tokens": ids, "hidden": hidden, "starts": np.zeros(2, np.int32)}[argument["name"]])
        hidden = compiled.run(*given)[0]
    assert off(want, hidden) <= TOLERANCE


def test_each_kind_of_layer_is_a_part(tool, oracles, tmp_path):
    """Gemma's layers see a window or everything; deepseek's first is dense."""
    for name in ("gemma2", "deepseek_v3"):
        exported(tool, oracles / name, tmp_path / name, "--parts", "--context", 8)
        kinds = [json.loads(path.read_text()) for path in (tmp_path / name).glob("*.arguments.json")]
        layers = [member for said in kinds if said["phase"] == "decode" for member in said["members"] if member.startswith("layers.")]
        assert len(layers) == len(set(layers)) == json.loads((oracles / name / "config.json").read_text())["num_hidden_layers"]
        assert sum(said["part"].startswith("layers.") for said in kinds) == 4  # two kinds, prefill and decode
        for path in (tmp_path / name).glob("*.mlir"):
            stablehlo_jax.parsed(path.read_text())


# ---- what is refused, and what is left on disk

def test_refusals(tool, oracles, tmp_path):
    def code(*words):
        return tool("export", *words, "--out", tmp_path / "out", "--to", "stablehlo").codes

    assert code(oracles / "bert", "--phase", "decode", "--context", 8) == ["TF1620"]
    assert code(oracles / "llama", "--phase", "decode", "--sequence", 9, "--context", 8) == ["TF1621"]
    assert code(oracles / "llama", "--batch", 1 << 24, "--context", 1 << 30) == ["TF1621"]
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    assert code(oracles / "llama", "--context", 8) == ["TF1608"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and not list((tmp_path / "out").iterdir())


def test_a_twin_in_primitives_has_a_prefill_alone(tool, oracles, tmp_path):
    done = tool.forge(oracles / "llama", 'name: "low" require: REASSOCIATED step { lower_composites { } }', tmp_path / "twin", "--to", "twin")
    assert done.code == 0, done
    ids, want = expected(oracles / "llama")
    exported(tool, tmp_path / "twin", tmp_path / "out", "--phase", "prefill", "--batch", 2, "--context", ids.shape[1])
    run = Exported(tmp_path / "out", "prefill", tmp_path / "twin", xla)
    logits, _ = run({"tokens": ids}, {})
    assert off(want, logits) <= TOLERANCE
    assert tool("export", tmp_path / "twin", "--to", "stablehlo", "--phase", "decode", "--out", tmp_path / "no").codes == ["TF1620"]
