"""The evaluator against the outside judge: every supported checkpoint, every layer, so that a fault names its layer."""
import judge
import pytest
import torch
from conftest import NAMES
from safetensors.torch import load_file, save_file

# A graph computes what the library computes: in float64 throughout to 1e-10 of the largest value, in float32 to the rounding of a
# few layers (judge.F32_TOLERANCE).
TOLERANCE = {"all64": 1e-10, "f32": judge.F32_TOLERANCE}
DTYPE = {"all64": "f64", "f32": "f32"}


def evaluated(tool, model, ids, out, *words):
    save_file({"input_ids": ids.contiguous()}, out / "ids.safetensors")
    done = tool("eval", model, "--inputs", out / "ids.safetensors", "--out", out / "out.safetensors", "--hidden-states", *words)
    assert done.code == 0, done
    return {name: value.double() for name, value in load_file(out / "out.safetensors").items()}


def off(want, got):
    assert want.shape == got.shape
    return float((want - got).abs().max() / want.abs().max())


@pytest.mark.parametrize("precision", ["all64", "f32"])
@pytest.mark.parametrize("name", NAMES)
def test_every_layer_is_the_judges(tool, oracles, wide, tmp_path, name, precision):
    model = wide(name) if precision == "all64" else oracles / name
    ids = judge.input_ids(model)
    want = judge.states(model, ids, precision)
    got = evaluated(tool, model, ids, tmp_path, "--dtype", DTYPE[precision])
    assert set(got) == set(want)
    for place in sorted(want):  # hidden_states.0, .1, ..., logits: the first that is off is where the fault lies
        assert off(want[place], got[place]) <= TOLERANCE[precision], place


@pytest.mark.parametrize("name", NAMES)
def test_the_models_own_dtype(tool, oracles, tmp_path, wide, name):
    """Stored in float64, a model is evaluated in it without being asked."""
    ids = judge.input_ids(oracles / name)
    own = evaluated(tool, wide(name), ids, tmp_path)
    (tmp_path / "out.safetensors").unlink()
    asked = evaluated(tool, oracles / name, ids, tmp_path, "--dtype", "f64")
    assert all(torch.equal(own[place], asked[place]) for place in asked)


@pytest.mark.parametrize("name", ["llama__tied_bf16", "mixtral__sharded_bf16"])
def test_bf16_is_as_near_to_the_truth_as_the_judges(tool, oracles, wide, tmp_path, name):
    ids = judge.input_ids(oracles / name)
    truth = judge.states(wide(name), ids, "all64")["logits"]
    theirs = judge.answer(judge.load(oracles / name, torch.bfloat16), ids).double()
    ours = evaluated(tool, oracles / name, ids, tmp_path, "--dtype", "bf16")["logits"]
    assert 0 < off(truth, ours) <= 2 * off(truth, theirs)


# What each twin of the library's recipes computes is what its source computes, evaluated from the twin's own files.
@pytest.mark.parametrize("name", ["llama__biases", "gemma2", "mixtral", "gpt_oss", "deepseek_v3", "bert"])
@pytest.mark.parametrize("recipe, words", [("tpu-exact-native", ("--to", "twin", "--kernel", "paged", "--shards", "2")),
                                           ("tpu-exact-portable", ("--to", "hf", "--shards", "4"))])
def test_twins(tool, wide, tmp_path, name, recipe, words):
    ids = judge.input_ids(wide(name))
    assert (done := tool.forge(wide(name), recipe, tmp_path / "twin", *words)).code == 0, done
    source = evaluated(tool, wide(name), ids, tmp_path, "--dtype", "f64")["logits"]
    (tmp_path / "out.safetensors").unlink()
    twin = evaluated(tool, tmp_path / "twin", ids, tmp_path, "--dtype", "f64")["logits"]
    assert off(source, twin[..., : source.shape[-1]]) <= judge.ALL64_TOLERANCE
