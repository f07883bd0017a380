"""Sequences beyond a model's places, tokens beyond its words: refused where a table ends, noted where positions turn."""
import json

import numpy as np
import pytest
from safetensors.numpy import save_file

LEARNED = {"gpt2": "n_positions", "bert": "max_position_embeddings"}


def most(folder, key):
    return json.loads((folder / "config.json").read_text())[key]


@pytest.fixture
def evaluate(tool, tmp_path):
    def run(folder, ids, **more):
        save_file({"input_ids": np.asarray(ids, np.int64), **more}, tmp_path / "in.safetensors")
        done = tool("eval", folder, "--inputs", tmp_path / "in.safetensors", "--out", tmp_path / "out.safetensors", "--format", "json")
        assert (tmp_path / "out.safetensors").exists() == (done.code == 0)
        (tmp_path / "out.safetensors").unlink(missing_ok=True)
        return done
    return run


@pytest.fixture(scope="module")
def padded(tool, oracles, tmp_path_factory):
    """gpt2 with a table of 128 words, of which some are none."""
    out = tmp_path_factory.mktemp("padded") / "twin"
    done = tool.forge(oracles / "gpt2", 'name: "v" step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } }', out)
    assert done.code == 0, done
    return out


@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_table_ends(tool, oracles, evaluate, tmp_path, name):
    folder = oracles / name
    known = most(folder, LEARNED[name])
    assert evaluate(folder, np.ones((1, known))).json["notes"] == []
    done = evaluate(folder, np.ones((1, known + 1)))
    assert done.code == 2 and done.codes == ["TF1703"] and f"input_ids: {known + 1} places" in done.err and f"has {known}" in done.err, done
    words = ["export", folder, "--to", "stablehlo", "--phase", "prefill", "--out", tmp_path / "mlir", "--context"]
    done = tool(*words, known + 1)
    assert done.code == 2 and done.codes == ["TF1703"] and "--context" in done.err and not (tmp_path / "mlir").exists(), done
    assert tool(*words, known).code == 0
    config = ["score", "--from-config", folder / "config.json", "--chip", "v6e", "--phase", "prefill", "--context"]
    assert tool(*config, known + 1).codes == ["TF1703"] and tool(*config, known).code == 0


def test_positions_that_are_given_are_checked_one_by_one(oracles, evaluate):
    known = most(oracles / "gpt2", "n_positions")
    assert evaluate(oracles / "gpt2", [[1, 2]], position_ids=np.array([[0, known - 1]], np.int64)).code == 0
    done = evaluate(oracles / "gpt2", [[1, 2]], position_ids=np.array([[0, known]], np.int64))
    assert done.codes == ["TF1901"] and "position_ids[0, 1]" in done.err, done


def test_rotary_positions_go_on_and_are_noted(tool, oracles, evaluate, tmp_path):
    folder = oracles / "llama"
    known = most(folder, "max_position_embeddings")
    note = f"sequences of {known + 1} places are longer than the model's max_position_embeddings, {known}"
    assert evaluate(folder, np.ones((1, known))).json["notes"] == []
    assert evaluate(folder, np.ones((1, known + 1))).json["notes"] == [note]
    for context, notes in ((known, []), (known + 1, [note])):
        said = tool.json("export", folder, "--to", "stablehlo", "--phase", "prefill", "--context", context, "--out", tmp_path / f"mlir{context}")
        assert said["notes"] == notes
    mixed = ["score", "--from-config", folder / "config.json", "--chip", "v6e", "--phase", "mixed", "--context", 8]
    assert tool.json(*mixed, "--chunk", 16, "--past", known - 16)["notes"] == []
    assert tool.json(*mixed, "--chunk", 16, "--past", known - 15)["notes"] == [note], "the prompt is the longest sequence"


def test_what_is_no_word_is_refused(oracles, evaluate, padded):
    for folder in (oracles / "gpt2", padded, oracles / "bert"):
        words = most(oracles / ("bert" if folder.name == "bert" else "gpt2"), "vocab_size")
        assert evaluate(folder, [[1, words - 1]]).code == 0
        for wrong in (words, words + 20, 2**40, -1):
            done = evaluate(folder, [[1, 2], [3, wrong]])
            assert done.code == 2 and done.codes == ["TF1901"] and f"input_ids[1, 1]: {wrong} is no place" in done.err, done


@pytest.mark.parametrize("words", [["--context", 8, "--past", 8, "--phase", "prefill"], ["--context", 8, "--phase", "decode"], ["--context", 8, "--phase", "mixed", "--chunk", 8],
                                   ["--phase", "serve", "--input-len", 8, "--output-len", 8]])
def test_an_encoder_has_nothing_before_its_tokens(tool, oracles, words):
    done = tool("score", "--from-config", oracles / "bert" / "config.json", "--chip", "v6e", *words)
    assert done.code == 3 and done.codes == ["TF1705"] and "hint:" in done.err, done
