"""A source without generation_config.json is governed by old keys of its config.json; its twin with a padded vocabulary, which
needs that file, says the same to unmodified transformers."""
import json
import shutil

import judge
import pytest
import torch
from transformers import GenerationConfig

PAD_VOCAB = 'name: "v" step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } }'
PHANTOMS = list(range(97, 128))


@pytest.fixture
def bare(oracles, tmp_path):
    """A copy of `name` without generation_config.json, `keys` added to its config.json."""
    def make(name, **keys):
        folder = tmp_path / "source"
        shutil.copytree(oracles / name, folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        config = json.loads((folder / "config.json").read_text())
        config.update(keys)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


def governed(folder):
    """What generate() goes by, and what it may not say."""
    said = judge.load(folder, torch.float32).generation_config.to_dict()
    for key in ("_from_model_config", "transformers_version"):
        said.pop(key, None)
    return said, set(said.pop("suppress_tokens") or [])


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("keys", [
    {},
    {"suppress_tokens": [3, 11, 96], "begin_suppress_tokens": [7], "repetition_penalty": 1.5},
    {"max_length": 31, "temperature": 0.25, "top_k": 3, "top_p": 0.5, "do_sample": True, "num_beams": 2, "min_length": 2},
    {"no_repeat_ngram_size": 2, "bad_words_ids": [[4, 5]], "length_penalty": 0.5, "early_stopping": True, "num_beams": 3},
    {"bos_token_id": 5, "force_bos_token_to_be_generated": True, "eos_token_id": None, "pad_token_id": 0, "use_cache": False},
    {"output_scores": True, "forced_eos_token_id": 9, "exponential_decay_length_penalty": [4, 1.5], "remove_invalid_values": True},
])
def test_what_governed_the_source_governs_the_twin(tool, bare, tmp_path, name, keys):
    source, twin = bare(name, **keys), tmp_path / "twin"
    done = tool.forge(source, PAD_VOCAB, twin, "--to", "hf")
    assert done.code == 0, done
    (said, silent), (wanted, already) = governed(twin), governed(source)
    assert said == wanted
    assert silent == already | set(PHANTOMS)
    assert tool("prove", source, twin).code == 0


@pytest.mark.parametrize("keys", [
    {"text_config": {"top_k": 4, "repetition_penalty": 1.25}, "repetition_penalty": 1.5},
    {"decoder": {}, "generator": {"typical_p": 0.5, "suppress_tokens": [8]}},
    {"decoder": {"top_p": 0.25}, "generator": {"typical_p": 0.5}},
])
def test_a_decoder_s_part_counts_where_the_whole_is_silent(tool, bare, tmp_path, keys):
    source, twin = bare("llama", **keys), tmp_path / "twin"
    assert tool.forge(source, PAD_VOCAB, twin, "--to", "hf").code == 0
    wanted = GenerationConfig.from_pretrained(source, config_file_name="config.json", _from_model_config=True)
    said = GenerationConfig.from_pretrained(twin)
    assert said.suppress_tokens == (wanted.suppress_tokens or []) + PHANTOMS
    said.suppress_tokens = wanted.suppress_tokens
    assert said == wanted


def test_the_twin_speaks_as_the_source(tool, bare, tmp_path):
    keys = {"suppress_tokens": [3, 11, 96], "begin_suppress_tokens": [7], "repetition_penalty": 1.5, "max_length": 30, "pad_token_id": 0}
    source, twin = bare("llama", **keys), tmp_path / "twin"
    assert tool.forge(source, PAD_VOCAB, twin, "--to", "hf").code == 0
    ids = judge.input_ids(source)
    spoken = [judge.load(folder, torch.float32).generate(ids, attention_mask=torch.ones_like(ids)) for folder in (source, twin)]
    assert spoken[0].shape[1] == 30 and torch.equal(*spoken)


def test_every_attribute_that_transformers_takes_is_carried(tool, bare, tmp_path):
    taken = set(GenerationConfig().to_dict()) - {"_from_model_config", "transformers_version", "suppress_tokens"}
    assert len(taken) > 60
    source, twin = bare("llama", **{key: 1 for key in taken}), tmp_path / "twin"
    assert tool.forge(source, PAD_VOCAB, twin, "--to", "hf").code == 0
    said = json.loads((twin / "generation_config.json").read_text())
    assert {key for key in taken if said.get(key) != 1} == set()
    assert said["suppress_tokens"] == PHANTOMS


@pytest.mark.parametrize("tokens, place, says", [
    ("all", "config.json: suppress_tokens: ", "no list"),
    ([1, 97], "config.json: suppress_tokens[1]: ", "vocabulary of 97"),
])
def test_old_keys_that_cannot_be_added_to(tool, bare, tmp_path, tokens, place, says):
    source = bare("llama", suppress_tokens=tokens)
    done = tool.forge(source, PAD_VOCAB, tmp_path / "twin")
    assert done.code == 4 and done.codes == ["TF1415"] and f"{source}/{place}" in done.err and says in done.err, done
