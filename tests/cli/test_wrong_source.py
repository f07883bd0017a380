"""`prove` with a source that the twin was not made from: a finding with the tensor's name, never a crash."""
import json
import shutil

import pytest
import safetensors.torch


def cut(tiny, folder, rows):
    """tiny-llama with so many rows of its vocabulary: the same names, another form."""
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = rows
    (folder / "config.json").write_text(json.dumps(config))
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in tensors:
            tensors[name] = tensors[name][:rows].clone()
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def widened(tiny, folder):
    """tiny-llama with a feed-forward that is twice as wide."""
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] *= 2
    (folder / "config.json").write_text(json.dumps(config))
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    for name in list(tensors):
        if "gate_proj" in name or "up_proj" in name:
            tensors[name] = tensors[name].repeat(2, 1)
        if "down_proj" in name:
            tensors[name] = tensors[name].repeat(1, 2)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("recipe", ["tpu-exact-portable", "tpu-exact-native"])
@pytest.mark.parametrize("make", [lambda tiny, to: cut(tiny, to, 50), widened], ids=["fewer rows", "wider"])
def test_a_source_of_another_form_is_a_finding(tool, tiny, tmp_path, recipe, make):
    twin = tmp_path / "twin"
    words = ["--chip", "v6e", "--shards", 2] + (["--kernel", "paged"] if recipe.endswith("portable") else ["--to", "twin"])
    assert tool("forge", tiny, "--recipe", recipe, *words, "--out", twin).code == 0
    other = make(tiny, tmp_path / "other")
    for source, forged in ((other, twin),):
        done = tool("prove", source, forged, "--format", "json")
        assert done.code == 1, done
        assert done.json["verdict"] == "REFUTED"
    # And the other way round: a twin of the other, held against this source.
    back = tmp_path / "back"
    assert tool("forge", other, "--recipe", recipe, *words, "--out", back).code == 0
    assert tool("prove", tiny, back).code == 1
