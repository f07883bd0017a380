"""A twin that another class carries (granite for llama) is read by its manifest wherever a twin is."""
import json
import shutil

import pytest

CARRY = "step { pad_head_dim { form: PORTABLE multiple: 128 carrier: true } }"


@pytest.fixture(scope="module")
def carried(tool, tiny, tmp_path_factory):
    twin = tmp_path_factory.mktemp("carried") / "twin"
    assert tool.forge(tiny, CARRY, twin, "--to", "hf").code == 0
    assert json.loads((twin / "config.json").read_text())["model_type"] == "granite"
    return twin


def logits(path):
    import numpy as np
    from safetensors.numpy import load_file
    return np.asarray(load_file(path)["logits"], dtype="float64")


def test_eval_gives_the_source_s_logits(tool, tiny, carried, tmp_path):
    import numpy as np
    from safetensors.numpy import save_file
    save_file({"input_ids": np.array([[3, 1, 4, 1, 5]], dtype="int64")}, tmp_path / "ids.safetensors")
    for model, out in ((tiny, "a"), (carried, "b")):
        done = tool("eval", model, "--inputs", tmp_path / "ids.safetensors", "--out", tmp_path / out, "--dtype", "f64")
        assert done.code == 0, done
    a, b = logits(tmp_path / "a"), logits(tmp_path / "b")
    assert a.shape == b.shape and abs(a - b).max() <= 1e-9 * abs(a).max()


def test_inspect_and_score_read_the_manifest(tool, tiny, carried):
    said = tool.json("inspect", carried)
    assert said["family"] == "llama" and said["layout"] == "hub" and said["dims"]["head_dim"] == 128
    assert said["stored"]["tensors"] == tool.json("inspect", tiny)["stored"]["tensors"]
    assert tool("inspect", carried, "--integrity").code in (0, 1)
    said = tool.json("score", carried, "--chip", "v6e")
    again = tool.json("score", tiny, "--chip", "v6e")
    assert said["ladder"] == again["ladder"], "the source beside it is the manifest's"
    assert said["twin"]["memory"]["parameter_bytes"] > said["memory"]["parameter_bytes"], "head_dim is 128 of 20"


@pytest.mark.parametrize("words", [["plan", "--recipe", "tpu-exact-portable"], ["forge", "--recipe", "tpu-exact-portable", "--out", "OUT"], ["prove", "TWIN"]])
def test_what_needs_a_checkpoint_says_who_carries_it(tool, carried, tmp_path, words):
    rest = [{"OUT": tmp_path / "out", "TWIN": carried}.get(word, word) for word in words[1:]]
    done = tool(words[0], carried, *rest)
    assert done.code == 3 and done.codes == ["TF1804"] and '"granite" carries' in done.err and "unforge" in done.err, done


def test_unforge_and_prove_as_ever(tool, tiny, carried, tmp_path):
    assert tool("prove", tiny, carried).code == 0
    assert tool("unforge", carried, "--out", tmp_path / "home").code == 0
    assert (tmp_path / "home" / "config.json").read_bytes() == (tiny / "config.json").read_bytes()


def test_a_carrier_s_config_that_is_damaged_is_named(tool, carried, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(carried, twin)
    (twin / "config.json").write_text("[]")
    done = tool("score", twin, "--chip", "v6e")
    assert done.code == 4 and str(twin / "config.json") in done.err, done
