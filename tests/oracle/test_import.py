"""Every checkpoint of the supported families opens, is counted exactly, comes back untouched, and goes home from a native twin."""
import json
from pathlib import Path

import judge
import pytest
import torch
import transformers
from conftest import NAMES

# What spans layers and devices: stored tensors of equal layers in one, axes split over two devices.
SCAN = ('name: "scan" require: REASSOCIATED step { fuse_qkv { shards: 2 } } step { fuse_gate_up { shards: 2 } } step { absorb_mla { } } '
        'step { shard_by_role { shards: 2 } } step { stack_layers { } }')
IDENTITY = 'name: "identity" step { cast_weights { to: "f16" } where { path: "no such role" expect: NONE } } require: BOUNDED'


@pytest.mark.parametrize("name", NAMES)
def test_counts(tool, oracles, name):
    said = tool.json("inspect", oracles / name)
    model = judge.load(oracles / name, torch.float32)
    assert said["parameters"]["total"] == sum(p.numel() for p in model.parameters())
    alone = tool.json("inspect", "--from-config", oracles / name / "config.json")
    assert alone["parameters"] == said["parameters"] and alone["family"] == said["family"]


@pytest.mark.parametrize("name", NAMES)
def test_untouched_comes_back(tool, oracles, tmp_path, name):
    done = tool.forge(oracles / name, IDENTITY, tmp_path / "twin", "--to", "hf")
    assert done.code == 0, done
    x, y = judge.tensors(oracles / name), judge.tensors(tmp_path / "twin")
    assert x.keys() == y.keys()
    assert all(x[k].dtype == y[k].dtype and torch.equal(x[k], y[k]) for k in x)
    assert json.loads((oracles / name / "config.json").read_text()) == json.loads((tmp_path / "twin" / "config.json").read_text())


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "bert"])
def test_both_layouts_are_read(tool, oracles, tmp_path, name):
    """The form in memory of the current library (grouped experts) opens as the same model."""
    cls = transformers.AutoModelForMaskedLM if name == "bert" else transformers.AutoModelForCausalLM
    model = cls.from_pretrained(oracles / name)
    model.save_pretrained(tmp_path / "memory", save_original_format=False)
    a, b = tool.json("inspect", oracles / name), tool.json("inspect", tmp_path / "memory")
    assert a["parameters"] == b["parameters"] and a["dims"] == b["dims"]
    done = tool.forge(tmp_path / "memory", IDENTITY, tmp_path / "twin", "--to", "hf")
    assert done.code == 0, done
    ids = judge.input_ids(oracles / name)
    assert judge.difference(oracles / name, tmp_path / "twin", ids, "f32") <= judge.F32_TOLERANCE


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("recipe, words", [("tpu-exact-native", ("--to", "twin", "--chip", "v6e")),
                                           ("tpu-exact-native", ("--to", "twin", "--kernel", "paged", "--shards", "2")),
                                           (SCAN, ("--to", "twin")),
                                           ("tpu-exact-portable", ("--to", "hf", "--shards", "4"))])
def test_proved_and_home_again(tool, oracles, tmp_path, name, recipe, words):
    source, twin, home = oracles / name, tmp_path / "twin", tmp_path / "home"
    done = tool.forge(source, recipe, twin, *words)
    assert done.code == 0, done
    proof = tool.json("prove", source, twin)
    assert proof["verdict"] == "PROVEN", proof
    done = tool("unforge", twin, "--out", home, "--progress", "none")
    assert done.code == 0, done
    x, y = judge.tensors(source), judge.tensors(home)
    assert x.keys() == y.keys()
    for key in x:
        assert x[key].dtype == y[key].dtype and torch.equal(x[key], y[key]), key
