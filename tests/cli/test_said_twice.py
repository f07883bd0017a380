"""Keys that say one thing twice, or what no graph here says; steps that would tear a fused tensor; ledgers of several files."""
import json
import shutil

import pytest


def with_keys(tiny, folder, **keys):
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config.update(keys)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return config


def test_a_rotary_base_said_twice_is_written_twice(tool, tiny, tmp_path):
    with_keys(tiny, tmp_path / "model", rope_theta=500.0, rope_parameters={"rope_theta": 500.0, "rope_type": "default"}, rope_scaling=None)
    done = tool.forge(tmp_path / "model", "require: BOUNDED step { pad_head_dim { form: PORTABLE multiple: 64 } }", tmp_path / "twin", "--to", "hf")
    assert done.code == 0, done
    twin = json.loads((tmp_path / "twin" / "config.json").read_text())
    assert twin["rope_theta"] == twin["rope_parameters"]["rope_theta"] > 500, twin
    assert tool("prove", tmp_path / "model", tmp_path / "twin").code == 0


@pytest.mark.parametrize("keys, code, says", [
    ({"rope_theta": 500.0, "rope_parameters": {"rope_theta": 400.0, "rope_type": "default"}}, "TF1406", '"rope_theta" say different things'),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}}, "TF1406", '"rope_scaling" say different'),
    ({"rope_theta": 500.0, "rope_parameters": None, "rope_scaling": {"rope_theta": 400.0, "rope_type": "default"}}, "TF1406", "rope_theta"),
    ({"is_causal": False}, "TF1407", '"is_causal": false'),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "TF1407", '"layer_types" other than full_attention'),
])
def test_what_runtimes_read_otherwise_is_refused(tool, tiny, tmp_path, keys, code, says):
    with_keys(tiny, tmp_path / "model", **keys)
    done = tool("inspect", tmp_path / "model")
    assert done.code == {"TF1406": 2, "TF1407": 3}[code] and done.codes == [code] and says in done.err, done


@pytest.mark.parametrize("steps, refused", [
    ("step { fuse_gate_up { shards: 2 } } step { pad_ffn { multiple: 125 } }", "pad_ffn"),
    ("require: BOUNDED step { fuse_qkv { } } step { cast_weights { to: 'f16' } where { path: '.*[qk]' } }", "cast_weights"),
])
def test_a_step_that_would_tear_a_fused_tensor_is_refused(tool, tiny, tmp_path, steps, refused):
    recipe = tmp_path / "mine.textproto"
    recipe.write_text(steps)
    said = tool.json("plan", tiny, "--recipe", recipe)
    assert all(row["step"] == f"2 {refused}" and "it lies fused in" in row["reason"] for row in said["refused"]) and said["refused"], said


def test_a_ledger_does_not_depend_on_how_many_files_there_are(tool, tiny, tmp_path):
    done = tool.forge(tiny, "require: BOUNDED step { fold_norm_scale { } }", tmp_path / "twin", "--to", "hf", "--shard-size", "20KiB")
    assert done.code == 0 and len(list((tmp_path / "twin").glob("*.safetensors"))) > 2, done
    done = tool("prove", tiny, tmp_path / "twin")
    assert done.code == 0, done


def test_a_where_beside_use_is_an_error(tool, tmp_path):
    (tmp_path / "mine.textproto").write_text('step { use: "tpu-exact-portable" where { first_layer: 1 } }')
    done = tool("recipe", "check", tmp_path / "mine.textproto")
    assert done.code == 2 and done.codes == ["TF1104"] and "`where`" in done.err, done
