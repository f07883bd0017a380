"""Law: what a twin's README.md says of the runtimes that load it is so: each line is tried on that twin."""
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from emitted import TOLERANCE, gap, judged, module_at, widened

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "gpt2", "bert"]
NOTHING = 'name: "none" step { pad_vocab { multiple: 1 } }'
WORDS = 'name: "words" step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } }'
TWINS = {"as it is": ("hf", NOTHING), "portable": ("hf", "tpu-exact-portable"), "words": ("hf", WORDS), "native": ("twin", "tpu-exact-native"), "bare": ("twin", NOTHING)}


def forge(tool, oracles, folder, name, way, *words):
    target, recipe = TWINS[way]
    source = widened(oracles / name, folder / "wide") if way == "portable" else oracles / name
    done = tool.forge(source, recipe, folder / "twin", "--to", target, *words)
    assert done.code == 0, done
    return folder / "twin"


@pytest.fixture(scope="module")
def twin(tool, oracles, tmp_path_factory):
    """(family, way) -> its twin's folder, made once."""
    made = {}

    def of(name, way):
        if (name, way) not in made:
            made[name, way] = forge(tool, oracles, tmp_path_factory.mktemp(name), name, way)
        return made[name, way]

    return of


def lines(folder):
    """Runtime -> what the README says of it."""
    section = (folder / "README.md").read_text().split("## What loads it\n\n")[1].split("\n\n")[0]
    return dict(re.fullmatch(r"- ([\w ]+): (.+)", line).groups() for line in section.splitlines())


def wanted(oracles, folder, name):
    """input_ids, the judge's logits, and how many logits of the twin are no words, as its README says."""
    ids, want = judged(oracles / name)
    padded = re.search(r"The last ([\d]+) logits are padding", lines(folder)["transformers"])
    return ids, want, int(padded[1]) if padded else 0


@pytest.mark.parametrize("way", TWINS)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_line_is_there(tool, oracles, twin, name, way):
    folder = twin(name, way)
    source = folder.parent / "wide" if way == "portable" else oracles / name
    assert tool.json("prove", source, folder)["failures"] == [], "prove writes the card again"
    said = lines(folder)
    assert set(said) == {"transformers", "JAX", "PyTorch"} | ({"ONNX runtimes"} if (folder / "model.onnx").exists() else set()), said
    assert said["transformers"].startswith("no. ") == (TWINS[way][0] == "twin")
    for who, file in (("JAX", "reference/model.py"), ("PyTorch", "reference/model_torch.py")):
        assert f"`python {file} --prompt-ids 1,2,3`" in said[who] and (folder / file).exists()


@pytest.mark.parametrize("way", TWINS)
@pytest.mark.parametrize("name", FAMILIES)
def test_transformers(twin, oracles, name, way):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    folder = twin(name, way)
    said = lines(folder)["transformers"]
    ids, want, padded = wanted(oracles, folder, name)
    if said.startswith("no. "):
        # Whatever its classes make of the folder is not the model: they find no config, or none of the tensors.
        try:
            _, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        except Exception:  # noqa: BLE001: any refusal is one
            return
        assert info["missing_keys"], (name, way)
        return
    kind = re.match(r"`(\w+)\.from_pretrained\(FOLDER\)`, unmodified\.", said)[1]
    assert json.loads((folder / "config.json").read_text())["architectures"] == [kind]
    model, info = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    with torch.no_grad():
        have = model.eval()(torch.tensor(ids.astype(np.int64))).logits.numpy()
    assert have.shape[-1] == want.shape[-1] + padded
    assert gap(have[..., :want.shape[-1]], want) <= TOLERANCE
    if "`suppress_tokens`" in said:
        listed = json.loads((folder / "generation_config.json").read_text())["suppress_tokens"]
        assert set(range(want.shape[-1], want.shape[-1] + padded)) <= set(listed)


@pytest.mark.parametrize("way", TWINS)
@pytest.mark.parametrize("name", FAMILIES)
def test_pytorch(twin, oracles, name, way):
    import torch
    folder = twin(name, way)
    module = module_at(folder / "reference" / "model_torch.py")
    ids, want, _ = wanted(oracles, folder, name)
    with torch.no_grad():
        assert gap(module.logits(module.load(dtype=torch.float32), ids), want) <= TOLERANCE


# Every way is compiled for every family in test_jax.py: here each family once, its way in turn.
@pytest.mark.parametrize("name, way", [(name, list(TWINS)[i % len(TWINS)]) for i, name in enumerate(FAMILIES)])
def test_jax(twin, oracles, name, way):
    import jax.numpy as jnp
    folder = twin(name, way)
    module = module_at(folder / "reference" / "model.py")
    ids, want, _ = wanted(oracles, folder, name)
    assert gap(module.logits(module.load(dtype=jnp.float32), ids), want) <= TOLERANCE


@pytest.mark.parametrize("who", ["JAX", "PyTorch"])
def test_the_command_runs_as_it_is_written(twin, who):
    folder = twin("llama", "words")
    command = re.search(r"`python ([^`]+)`", lines(folder)[who])[1].split()
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, env={"PYTHONDONTWRITEBYTECODE": "1", "JAX_PLATFORMS": "cpu", "PATH": ""})
    assert done.returncode == 0 and re.match(r"tokens: \d+", done.stdout), done


def test_a_twin_without_code_says_so(tool, oracles, tmp_path):
    bare = forge(tool, oracles, tmp_path, "llama", "native", "--no-reference")
    assert lines(bare)["JAX"] == lines(bare)["PyTorch"] == "no code for it lies here."
    lowered = tmp_path / "lowered"
    assert tool.forge(oracles / "llama", 'name: "primitives" step { lower_composites { } }', lowered, "--to", "twin").code == 0
    said = lines(lowered)
    assert said["JAX"] == said["PyTorch"] == "no code for it lies here." and not (lowered / "reference").exists(), said
    for folder in (bare, lowered):
        assert tool.json("prove", oracles / "llama", folder)["failures"] == []


# ---- words that are none, places that are none

@pytest.fixture(scope="module")
def small(twin):
    return twin("gpt2", "words"), twin("bert", "words")


def refusals(module, params, ids, batch):
    """What `logits` and `generate` say of tokens beyond the words, below them and beyond the places."""
    words = module.CONFIG.vocab
    for wrong in (words, words + 20, 2**40, -1):
        bad = batch(ids, wrong)
        for call in (module.logits, *([lambda p, t: module.generate(p, t, 2)] if hasattr(module, "generate") else [])):
            with pytest.raises(ValueError, match=f"the model has {words} words"):
                call(params, bad)
    long = np.ones((1, module.CONFIG.positions + 1), np.int64)
    with pytest.raises(ValueError, match=f"the model has places for {module.CONFIG.positions}"):
        module.logits(params, long)
    if hasattr(module, "generate"):
        with pytest.raises(ValueError, match="the model has places for"):
            module.generate(params, long[:, :-4], 5)


def with_token(ids, token):
    bad = np.array(ids, np.int64)
    bad[-1, -1] = token
    return bad


def test_pytorch_refuses_what_is_no_word(small, oracles):
    import torch
    for folder, name in zip(small, ("gpt2", "bert")):
        module = module_at(folder / "reference" / "model_torch.py")
        with torch.no_grad():
            refusals(module, module.load(), judged(oracles / name)[0], with_token)


def test_jax_refuses_what_is_no_word(small, oracles):
    import jax
    import jax.numpy as jnp
    for folder, name in zip(small, ("gpt2", "bert")):
        module, ids = module_at(folder / "reference" / "model.py"), judged(oracles / name)[0]
        params = module.load()
        refusals(module, params, ids, with_token)
        with pytest.raises(ValueError, match="words"):
            module.logits(params, jnp.asarray(with_token(ids, module.CONFIG.vocab), jnp.int32))
        jax.eval_shape(module.logits, params, jnp.asarray(ids))  # of a tracer nothing is known, and nothing is refused
