"""Law: the emitted PyTorch module gives the outside judge's logits, for every family and every library recipe: a whole
sequence at once, a prompt and then token by token through the cache, prompts of several lengths in one batch; and the
tools that take a module whole, torch.export and torch.compile, take it."""
import subprocess
import sys

import numpy as np
import pytest
import torch
from emitted import (CASES, ENCODERS, FOR_A_SLICE, SOME, TOLERANCE, TRAINED, WAYS, gap, headless, judged, judged_hidden, module_at,
                     twin_of)
from torch.export import Dim, export

torch.set_num_threads(1)    # models are tiny: threads would only wait for one another


def forged(tool, oracles, tmp_path, name, way):
    """The twin's module and its model in float32."""
    twin = twin_of(tool, oracles, tmp_path, name, way)
    module = module_at(twin / "reference" / "model_torch.py")
    return module, module.load(twin, dtype=torch.float32)


@pytest.mark.parametrize("name, way", CASES)
def test_logits_are_the_judges(tool, oracles, tmp_path, name, way):
    module, model = forged(tool, oracles, tmp_path, name, way)
    ids, want = judged(oracles / name)
    assert gap(module.logits(model, ids), want) <= TOLERANCE
    if name in ENCODERS:
        padded, lengths = ids.copy(), [ids.shape[1], ids.shape[1] - 4]
        padded[1, -4:] = 0
        together = module.logits(model, padded, lengths)
        assert gap(together[0], want[0]) <= TOLERANCE
        assert gap(together[1, :-4], module.logits(model, ids[1:, :-4])[0]) <= TOLERANCE
        return
    if name in TRAINED:
        ids = ids[:, :TRAINED[name]]
        want = module.logits(model, ids).numpy()
    decode(module, model, ids, want, lengths=[5, 3])


def decode(module, model, ids, want, lengths):
    """A batch of prompts of two lengths, then up to eight tokens through the cache."""
    lengths = torch.tensor(lengths)
    rows = torch.arange(len(lengths))
    ids = torch.tensor(ids, dtype=torch.long)
    longest = int(lengths.max())
    prompt = ids[:, :longest].clone()
    prompt[torch.arange(longest) >= lengths[:, None]] = 1     # whatever stands behind a prompt
    cache = module.init_cache(len(rows), ids.shape[1], torch.float32)
    row, cache = module.prefill(model, cache, prompt, lengths)
    assert gap(row, want[rows, lengths - 1]) <= TOLERANCE
    for step in range(min(8, ids.shape[1] - longest)):
        at = lengths + step
        row, cache = module.decode_step(model, cache, ids[rows, at], at)
        assert gap(row, want[rows, at]) <= TOLERANCE, step


@pytest.mark.parametrize("recipe", ["tpu-exact-portable", "tpu-exact-native"])
def test_without_a_head_there_are_hidden_states(tool, oracles, tmp_path, recipe):
    source = headless(oracles, tmp_path / "source")
    done = tool.forge(source, recipe, tmp_path / "twin", *FOR_A_SLICE)
    assert done.code == 0, done
    assert tool.json("prove", source, tmp_path / "twin")["verdict"] == "PROVEN"
    module = module_at(tmp_path / "twin" / "reference" / "model_torch.py")
    ids, want = judged_hidden(oracles / "bert")
    assert gap(module.hidden_states(module.load(), ids), want) <= TOLERANCE


@pytest.mark.parametrize("name", SOME)
def test_export_takes_it_at_any_size(tool, oracles, tmp_path, name):
    """Exported with one batch and length, called with others."""
    module, model = forged(tool, oracles, tmp_path, name, "native")
    ids, want = judged(oracles / name)
    ids = torch.tensor(ids, dtype=torch.long)
    arguments, shapes = (ids[:, :6].contiguous(),), [{0: Dim("batch", min=1, max=64), 1: Dim("seq", min=2, max=64)}]
    if name in ENCODERS:
        arguments, shapes = (*arguments, torch.tensor([6, 4])), [*shapes, {0: shapes[0][0]}]
    exported = export(model, arguments, dynamic_shapes=shapes).module()
    for batch in (ids, ids[[0, 1, 0]]):
        lengths = (torch.full((len(batch),), ids.shape[1]),) if name in ENCODERS else ()
        have = exported(batch, *lengths)
        assert gap(have[:2], want) <= TOLERANCE
        assert gap(have, module.logits(model, batch)) <= TOLERANCE


@pytest.mark.parametrize("name", ["llama", "deepseek_v3"])
def test_export_takes_a_step_with_its_cache(tool, oracles, tmp_path, name):
    module, model = forged(tool, oracles, tmp_path, name, "native")
    ids, want = judged(oracles / name)
    ids = torch.tensor(ids, dtype=torch.long)
    batch, seq = ids.shape

    def cache():
        return module.init_cache(batch, seq, torch.float32)

    at = torch.zeros(batch, 1, dtype=torch.long)
    step = export(model, (ids[:, :1].contiguous(), at, cache())).module()
    remembered = cache()
    for place in range(8):
        have = step(ids[:, place:place + 1].contiguous(), at + place, remembered)
        assert gap(have[:, 0], want[:, place]) <= TOLERANCE, place


@pytest.mark.parametrize("name, backend", [(name, "eager") for name in SOME] + [("llama", "aot_eager")])
def test_compile_finds_no_break(tool, oracles, tmp_path, name, backend):
    module, model = forged(tool, oracles, tmp_path, name, "native")
    ids, want = judged(oracles / name)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    assert gap(compiled(torch.tensor(ids, dtype=torch.long)), want) <= TOLERANCE


@pytest.mark.parametrize("name", ["llama", "deepseek_v3"])
def test_compile_takes_a_step_with_its_cache(tool, oracles, tmp_path, name):
    module, model = forged(tool, oracles, tmp_path, name, "native")
    ids, want = judged(oracles / name)
    ids = torch.tensor(ids, dtype=torch.long)
    torch._dynamo.reset()
    step = torch.compile(module.decode_step, fullgraph=True, backend="aot_eager")
    cache = module.init_cache(*ids.shape, torch.float32)
    at = torch.full((ids.shape[0],), 4)
    _, cache = module.prefill(model, cache, ids[:, :4], at)
    for place in range(4, 8):
        row, cache = step(model, cache, ids[:, place], torch.full_like(at, place))
        assert gap(row, want[:, place]) <= TOLERANCE, place


PADDED = 'name: "v" step { pad_vocab { multiple: 128 mask: REFERENCE } }'


@pytest.mark.parametrize("name", ["llama", "llama__tied_bf16", "gemma2", "gpt2"])
def test_phantom_tokens_are_never_spoken(tool, oracles, tmp_path, name):
    """Drawn hot enough that every place with a logit would come up, and the likeliest: the source's own words."""
    ids, want = judged(oracles / name)
    said = {}
    for folder, recipe in (("same", WAYS["as it is"][1]), ("twin", PADDED)):
        done = tool.forge(oracles / name, recipe, tmp_path / folder, "--to", "hf")
        assert done.code == 0, done
        module = module_at(tmp_path / folder / "reference" / "model_torch.py")
        model = module.load(tmp_path / folder, dtype=torch.float32)
        said[folder] = module.generate(model, ids, steps=12)
    assert torch.equal(said["twin"], said["same"])
    assert model.embed.table.shape[0] == 128
    drawn = module.generate(model, np.repeat(ids, 8, axis=0), steps=24, temperature=1e6,
                            generator=torch.Generator().manual_seed(3))
    assert drawn.max() < want.shape[-1] and len(drawn.unique()) > 80


def test_generation_of_prompts_of_several_lengths_is_that_of_each_alone(tool, oracles, tmp_path):
    module, model = forged(tool, oracles, tmp_path, "qwen3", "native")
    ids, _ = judged(oracles / "qwen3")
    lengths = [9, 4]
    together = module.generate(model, ids[:, :9], steps=6, lengths=lengths)
    for row, length in enumerate(lengths):
        assert torch.equal(together[row], module.generate(model, ids[row:row + 1, :length], steps=6)[0]), row


def test_weights_stay_as_they_are_stored(tool, oracles, tmp_path):
    """Without a dtype nothing is converted, and bfloat16 gives the logits to its own precision."""
    done = tool.forge(oracles / "mistral__window", "tpu-exact-native", tmp_path / "twin", "--to", "twin")
    assert done.code == 0, done
    module = module_at(tmp_path / "twin" / "reference" / "model_torch.py")
    model = module.load(tmp_path / "twin")
    assert {value.dtype for value in model.parameters()} == {torch.bfloat16}
    ids, want = judged(oracles / "mistral__window")
    assert gap(module.logits(model, ids).float(), want) <= 4e-2


def test_a_tied_head_is_one_parameter(tool, oracles, tmp_path):
    """Also after a conversion, in whatever order the twin keeps its axes."""
    for way in ("as it is", "native"):
        (tmp_path / way).mkdir()
        _, model = forged(tool, oracles, tmp_path / way, "llama__tied_bf16", way)
        assert model.lm_head.head is model.embed.table
        assert "lm_head.head" not in dict(model.named_parameters())


# What a stranger has: torch and safetensors, and no other package that this house's tests use.
ALONE = """
import runpy, sys
sys.modules |= dict.fromkeys(["numpy", "jax", "ml_dtypes", "transformers", "tokenizers"])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_a_stranger_runs_the_file(tool, oracles, tmp_path, name):
    done = tool.forge(oracles / name, "tpu-exact-portable", tmp_path / "twin")
    assert done.code == 0, done
    words = ["--prompt-ids", "5,6,7"] + ([] if name == "bert" else ["--steps", "5"])
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", ALONE, tmp_path / "twin" / "reference" / "model_torch.py", *words],
                         cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    tokens = ran.stdout.split("tokens:")[1].split()
    assert len(tokens) == (3 if name == "bert" else 5), ran
    assert all(0 <= int(token) < 97 for token in tokens)


def test_a_changed_byte_is_found(tool, oracles, tmp_path):
    twin = tmp_path / "twin"
    done = tool.forge(oracles / "llama", "tpu-exact-portable", twin)
    assert done.code == 0, done
    assert 'name: "reference/model_torch.py"' in (twin / "twin.manifest.textproto").read_text()
    assert tool.json("prove", oracles / "llama", twin)["verdict"] == "PROVEN"
    path = twin / "reference" / "model_torch.py"
    path.write_text(path.read_text().replace("age >= 0", "age >= 1"))
    said = tool.json("prove", oracles / "llama", twin, code=1)
    assert any(row["subject"] == "reference/model_torch.py" for row in said["failures"]), said
