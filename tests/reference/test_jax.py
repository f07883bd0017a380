"""Law: the emitted JAX module gives the outside judge's logits, for every family and every library recipe: a whole
sequence at once, a prompt and then token by token through the cache, prompts of several lengths in one batch."""
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from emitted import CASES, ENCODERS, FOR_A_SLICE, TOLERANCE, TRAINED, WAYS, gap, headless, judged, judged_hidden, module_at, twin_of
from quick_jax import quickened


def forged(tool, oracles, tmp_path, name, way):
    """The twin's module and its parameters in float32."""
    twin = twin_of(tool, oracles, tmp_path, name, way)
    module = quickened(module_at(twin / "reference" / "model.py"))
    return module, module.load(twin, dtype=jnp.float32)


@pytest.mark.parametrize("name, way", CASES)
def test_logits_are_the_judges(tool, oracles, tmp_path, name, way):
    module, params = forged(tool, oracles, tmp_path, name, way)
    ids, want = judged(oracles / name)
    assert gap(module.logits(params, ids), want) <= TOLERANCE
    if name in ENCODERS:
        lengths = np.array([ids.shape[1], ids.shape[1] - 4])
        assert gap(module.logits(params, ids, lengths)[0], want[0]) <= TOLERANCE
        padded = ids.copy()
        padded[1, -4:] = 0
        again = module.logits(params, padded, lengths)
        alone = module.logits(params, ids[1:, :-4])
        assert gap(again[1, :-4], np.asarray(alone[0], np.float64)) <= TOLERANCE
        return
    if name in TRAINED:
        ids = ids[:, :TRAINED[name]]
        want = np.asarray(module.logits(params, ids), np.float64)
    decode(module, params, ids, want, lengths=[5, 3])


def decode(module, params, ids, want, lengths):
    """A batch of prompts of two lengths, then up to eight tokens through the cache."""
    lengths = np.array(lengths, np.int32)
    rows = np.arange(len(lengths))
    prompt = ids[:, :lengths.max()].copy()
    prompt[np.arange(prompt.shape[1]) >= lengths[:, None]] = 1     # whatever stands behind a prompt
    cache = module.init_cache(len(rows), ids.shape[1], jnp.float32)
    row, cache = module.prefill(params, cache, prompt, lengths)
    assert gap(row, want[rows, lengths - 1]) <= TOLERANCE
    for step in range(min(8, ids.shape[1] - lengths.max())):
        at = lengths + step
        row, cache = module.decode_step(params, cache, ids[rows, at], at)
        assert gap(row, want[rows, at]) <= TOLERANCE, step


@pytest.mark.parametrize("recipe", ["tpu-exact-portable", "tpu-exact-native"])
def test_without_a_head_there_are_hidden_states(tool, oracles, tmp_path, recipe):
    source = headless(oracles, tmp_path / "source")
    done = tool.forge(source, recipe, tmp_path / "twin", *FOR_A_SLICE)
    assert done.code == 0, done
    assert tool.json("prove", source, tmp_path / "twin")["verdict"] == "PROVEN"
    module = module_at(tmp_path / "twin" / "reference" / "model.py")
    ids, want = judged_hidden(oracles / "bert")
    params = module.load()
    assert gap(module.hidden_states(params, ids), want) <= TOLERANCE
    shorter = module.hidden_states(params, ids, np.array([ids.shape[1], 4]))
    assert gap(shorter[1, :4], np.asarray(module.hidden_states(params, ids[1:, :4])[0], np.float64)) <= TOLERANCE
    assert not hasattr(module, "logits")


PADDED = 'name: "v" step { pad_vocab { multiple: 128 mask: REFERENCE } }'


@pytest.mark.parametrize("name", ["llama", "llama__tied_bf16", "gemma2", "gpt2"])
def test_phantom_tokens_are_never_spoken(tool, oracles, tmp_path, name):
    """Drawn hot enough that every place with a logit would come up, and the likeliest: the source's own words."""
    done = tool.forge(oracles / name, PADDED, tmp_path / "twin", "--to", "hf")
    assert done.code == 0, done
    done = tool.forge(oracles / name, WAYS["as it is"][1], tmp_path / "same", "--to", "hf")
    assert done.code == 0, done
    ids, want = judged(oracles / name)
    said = {}
    for folder in ("twin", "same"):
        module = quickened(module_at(tmp_path / folder / "reference" / "model.py"))
        params = module.load(tmp_path / folder, dtype=jnp.float32)
        said[folder] = module.generate(params, ids, steps=12)
    assert (np.asarray(said["twin"]) == np.asarray(said["same"])).all()
    assert "vocab (97 and padding)" in (tmp_path / "twin" / "reference" / "model.py").read_text()
    module = module_at(tmp_path / "twin" / "reference" / "model.py")
    params = module.load(tmp_path / "twin", dtype=jnp.float32)
    drawn = module.generate(params, np.repeat(ids, 8, axis=0), steps=24, temperature=1e6, key=jax.random.key(3))
    drawn = np.asarray(drawn)
    assert drawn.max() < want.shape[-1] and len(np.unique(drawn)) > 80


def test_generation_of_prompts_of_several_lengths_is_that_of_each_alone(tool, oracles, tmp_path):
    module, params = forged(tool, oracles, tmp_path, "qwen3", "native")
    ids, _ = judged(oracles / "qwen3")
    lengths = np.array([9, 4])
    together = np.asarray(module.generate(params, ids[:, :9], steps=6, lengths=lengths))
    for row, length in enumerate(lengths):
        alone = np.asarray(module.generate(params, ids[row:row + 1, :length], steps=6))
        assert (together[row] == alone[0]).all(), row


def test_weights_stay_as_they_are_stored(tool, oracles, tmp_path):
    """Without a dtype nothing is converted, and bfloat16 gives the logits to its own precision."""
    done = tool.forge(oracles / "mistral__window", "tpu-exact-native", tmp_path / "twin", "--to", "twin")
    assert done.code == 0, done
    module = module_at(tmp_path / "twin" / "reference" / "model.py")
    params = module.load(tmp_path / "twin")
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    ids, want = judged(oracles / "mistral__window")
    assert gap(module.logits(params, ids), want) <= 4e-2


@pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss", "gpt2"])
def test_a_cpu_multiplies_bfloat16(tool, oracles, tmp_path, name):
    """Not every product of them has a kernel in XLA's CPU backend: each block's are written as one that has."""
    twin = twin_of(tool, oracles, tmp_path, name, "native")
    module = module_at(twin / "reference" / "model.py")
    params = module.load(twin, dtype=jnp.bfloat16)
    ids, want = judged(oracles / name)
    said = module.generate(params, ids[:, :4], steps=3)
    assert said.shape == (len(ids), 3) and np.asarray(said).max() < want.shape[-1]
    assert np.isfinite(np.asarray(module.logits(params, ids), np.float32)).all()


def test_a_mesh_splits_what_the_graph_splits(tool, oracles, tmp_path):
    """In a process of two devices: parameters lie in halves along the axes that --shards names, and logits stay."""
    done = tool.forge(oracles / "llama", "tpu-exact-native", tmp_path / "twin", "--to", "twin", *FOR_A_SLICE)
    assert done.code == 0, done
    code = f"""
import jax, jax.numpy as jnp
from emitted import module_at
import numpy as np
module = module_at({str(tmp_path / "twin" / "reference" / "model.py")!r})
mesh = jax.make_mesh((2,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
split, whole = module.load(mesh=mesh), module.load()
up = split["layers"][0]["mlp"]["up"]
assert up.addressable_shards[0].data.size * 2 == up.size, up.sharding
q = split["layers"][0]["attn"]["q"]
assert q.addressable_shards[0].data.shape[1] * 2 == q.shape[1], q.sharding
ids = np.array([[5, 6, 7, 8]])
gap = np.abs(np.asarray(module.logits(split, ids)) - np.asarray(module.logits(whole, ids))).max()
assert gap < 1e-5, gap
print("split", module.generate(split, ids, 4).tolist() == module.generate(whole, ids, 4).tolist())
"""
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu",
                        "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert ran.stdout.split() == ["split", "True"], ran.stderr


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_a_stranger_runs_the_file(tool, oracles, tmp_path, name):
    done = tool.forge(oracles / name, "tpu-exact-portable", tmp_path / "twin")
    assert done.code == 0, done
    words = ["--prompt-ids", "5,6,7"] + ([] if name == "bert" else ["--steps", "5"])
    ran = subprocess.run([sys.executable, "reference/model.py", *words], cwd=tmp_path / "twin", capture_output=True, text=True)
    tokens = ran.stdout.split("tokens:")[1].split()
    assert ran.returncode == 0 and len(tokens) == (3 if name == "bert" else 5), ran
    assert all(0 <= int(token) < 97 for token in tokens)
    assert "reference/model.py" in (tmp_path / "twin" / "README.md").read_text()


def test_text_goes_in_and_comes_out_where_there_is_a_tokenizer(tool, oracles, tmp_path):
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    source = tmp_path / "source"
    shutil.copytree(oracles / "llama", source)
    words.save(str(source / "tokenizer.json"))
    done = tool.forge(source, "tpu-exact-portable", tmp_path / "twin")
    assert done.code == 0, done
    ran = subprocess.run([sys.executable, tmp_path / "twin" / "reference" / "model.py", "--prompt", "w5 w6", "--steps", "3"],
                         capture_output=True, text=True)
    assert ran.returncode == 0 and "text: w5 w6 w" in ran.stdout, ran
