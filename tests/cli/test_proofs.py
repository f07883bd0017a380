"""What prove finds in a twin whose manifest was sealed anew, and one exit status for what is damaged."""
import json
import shutil
import struct

import adapters
import pytest
from manifests import NAME, replace, reseal

FOLD = 'name: "fold" require: BOUNDED step { fold_norm_scale {} }'
FFN = 'name: "ffn" step { pad_ffn { multiple: 128 } }'
HEADS = 'name: "heads" step { pad_heads { multiple_of_chip: SHARDS } } step { pad_ffn { multiple: 128 } }'


@pytest.fixture(scope="module")
def forged(tool, tiny, tmp_path_factory):
    twin = tmp_path_factory.mktemp("forged") / "twin"
    done = tool.forge(tiny, HEADS, twin, "--shards", 3, "--chip", "v6e", "--skip-step", "pad_ffn")
    assert done.code == 0, done
    return twin


@pytest.fixture
def twin(forged, tmp_path):
    shutil.copytree(forged, tmp_path / "twin")
    return tmp_path / "twin"


def test_an_honest_twin_is_proven(tool, tiny, twin):
    said = tool.json("prove", tiny, twin)
    assert said["verdict"] == "PROVEN" and said["checks"]["recipe"] == {"things": 8, "failed": 0}, said


@pytest.mark.parametrize("edit, check, subject", [
    (replace('multiple_of_chip: SHARDS', 'multiple: 4'), "recipe", "graph"),
    (replace('pad_heads', 'pad_haeds'), "recipe", "text"),
    (replace('recipe: "name: \\"heads\\"', 'recipe: "name: \\"tails\\"'), "recipe", "name"),
    (replace('shards: 3', 'shards: 4'), "recipe", "graph"),
    (replace('chip: "v6e"', 'chip: "abacus"'), "recipe", "text"),
    (replace('skipped: "pad_ffn"\n', ''), "recipe", "graph"),
    (replace('2 rewritten', '3 rewritten'), "recipe", "steps"),
    (replace('fidelity: "MOVED"', 'fidelity: "REASSOCIATED"'), "recipe", "fidelity"),
    (replace('source_graph: "graph llama(', 'source_graph: "graph lama('), "recipe", "source_graph"),
    (lambda body: "\n".join(line for line in body.split("\n") if not line.startswith("source_graph")), "recipe", "source_graph"),
    (replace('hidden_size\\": 48', 'hidden_size\\": 49'), "headers", "config.json"),
    (lambda body: body.replace('name: "config.json"\n  content', 'name: "generation_config.json"\n  content'), "headers", "config.json"),
])
def test_a_lie_that_is_sealed_anew_is_found(tool, tiny, twin, edit, check, subject):
    reseal(twin, edit)
    done = tool("prove", tiny, twin, "--format", "json")
    assert done.code == 1, done
    found = [(row["check"], row["subject"]) for row in done.json["failures"] if row["verdict"] == "REFUTED"]
    assert (check, subject) in found, done.json["failures"]


def verbs_on(tool, tiny, twin, tmp_path):
    return [tool("prove", tiny, twin), tool("unforge", twin, "--out", tmp_path / "home"), tool("inspect", twin), tool("score", twin, "--chip", "v6e")]


@pytest.mark.parametrize("damage, code", [
    (lambda twin: (twin / "model.safetensors").unlink(), "TF1803"),
    (lambda twin: (twin / "model.safetensors").write_bytes((twin / "model.safetensors").read_bytes()[:-7]), "TF1803"),
    (lambda twin: (twin / "model.safetensors").write_bytes(b""), "TF1803"),
    (lambda twin: (twin / NAME).write_text((twin / NAME).read_text()[:-100]), "TF1801"),
    (lambda twin: reseal(twin, replace('program: "take(', 'program: "takes(')), "TF1801"),
    (lambda twin: reseal(twin, replace('\ngraph: "graph', '\ngraph: "giraffe')), "TF1801"),
    (lambda twin: reseal(twin, replace('\nsource_graph: "graph', '\nsource_graph: "giraffe')), "TF1801"),
    (lambda twin: reseal(twin, replace('\nshards: 3', '\nshards: -3')), "TF1801"),
    (lambda twin: reseal(twin, replace('name: "model.norm.weight"\n  dtype: "BF16"', 'name: "model.norm.weight"\n  dtype: "F16"')), "TF1801"),
    (lambda twin: reseal(twin, replace('  shape: 48\n', '  shape: 4294967296\n')), "TF1801"),
])
def test_damage_has_one_status_for_every_verb(tool, tiny, twin, tmp_path, damage, code):
    damage(twin)
    file = NAME if code == "TF1801" else "model.safetensors"
    for done in verbs_on(tool, tiny, twin, tmp_path):
        assert done.code == 4 and done.codes == [code] and f"{twin}/{file}: " in done.err, done
    assert not list(tmp_path.glob("home*"))


def with_shape(tiny, folder, name, dtype, shape):
    """tiny-llama with one tensor declared otherwise, of the same bytes."""
    shutil.copytree(tiny, folder)
    data = (folder / "model.safetensors").read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header[name].update(dtype=dtype, shape=shape)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])


def test_another_source_is_a_finding(tool, tiny, twin, tmp_path):
    """It opens as a model, and is not the one that the twin was made from."""
    with_shape(tiny, tmp_path / "other", "model.norm.weight", "F16", [48])
    done = tool("prove", tmp_path / "other", twin, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED", done
    subjects = {row["subject"] for row in done.json["failures"]}
    assert {"model.safetensors", "model.norm.weight"} <= subjects, subjects


def test_rounding_is_claimed_and_bounded(tool, tiny, tmp_path):
    done = tool.forge(tiny, "tpu-exact-portable", tmp_path / "twin", "--kernel", "paged", "--shards", 4)
    assert done.code == 0 and "fidelity BOUNDED, each rounded weight within 2^-8 of its magnitude" in done.out, done
    assert "3 pad_head_dim" in done.out and "BOUNDED 2^-8" in done.out, done
    assert 'bound: "2^-8"' in (tmp_path / "twin" / NAME).read_text()
    assert "within 2^-8" in (tmp_path / "twin" / "README.md").read_text()
    done = tool("prove", tiny, tmp_path / "twin")
    assert done.code == 0 and "fidelity BOUNDED, each rounded weight within 2^-8" in done.out, done
    said = tool.json("plan", tiny, "--recipe", "tpu-exact-portable", "--kernel", "paged", "--shards", 4)
    assert said["fidelity"] == "BOUNDED" and said["bound"] == "2^-8", said
    assert [row["bound"] for row in said["steps"]] == ["", "", "2^-8", "", ""], said
    reseal(tmp_path / "twin", replace('fidelity: "BOUNDED"', 'fidelity: "REASSOCIATED"'))
    done = tool("prove", tiny, tmp_path / "twin", "--format", "json")
    assert done.code == 1 and ("recipe", "fidelity") in [(row["check"], row["subject"]) for row in done.json["failures"]], done


@pytest.mark.parametrize("steps", [
    ["cast_weights { to: 'f16' }", "fold_norm_scale { }"],
    ["fold_norm_scale { }", "cast_weights { to: 'f64' }"],
    ["cast_weights { to: 'f16' }", "cast_weights { to: 'bf16' }", "cast_weights { to: 'f32' }"],
    ["pad_hidden { form: PORTABLE multiple: 80 }", "fold_norm_scale { }", "keep_n_of_m { keep: 1 of: 2 along: 'in' }"]])
def test_roundings_upon_roundings_are_no_false_alarm(tool, tiny, tmp_path, steps):
    recipe = "require: RETRAIN " + " ".join(f"step {{ {step} }}" for step in steps)
    done = tool.forge(tiny, recipe, tmp_path / "twin", "--to", "twin")
    assert done.code == 0, done
    said = tool.json("prove", tiny, tmp_path / "twin")
    claims = said["claims"]
    assert said["verdict"] == claims["verdict"] == "PROVEN" and claims["rounded"], said
    assert all(row["claimed"] <= claims["bound"] * (1 + 1e-12) for row in claims["rounded"]), claims
    assert claims["three_way"]["dtype"] in ("bf16", "f16"), claims


def test_rounding_is_refused_where_the_recipe_requires_more(tool, tiny, tmp_path):
    recipe = tmp_path / "mine.textproto"
    for step in ("pad_head_dim { form: PORTABLE multiple: 32 }", "fold_norm_scale { }"):
        recipe.write_text(f"step {{ {step} }}")
        said = tool.json("plan", tiny, "--recipe", recipe)
        assert said["sites"] == 0 and any("within 2^-8" in row["reason"] and "require: BOUNDED" in row["reason"] for row in said["refused"]), said
        recipe.write_text(f"require: BOUNDED step {{ {step} }}")
        said = tool.json("plan", tiny, "--recipe", recipe)
        assert said["sites"] > 0 and said["fidelity"] == "BOUNDED" and said["bound"] == "2^-8", said
    # Twice rounded is twice as far off; a power of two is not rounded at all.
    recipe.write_text("require: BOUNDED step { fold_norm_scale { } } step { pad_head_dim { form: PORTABLE multiple: 32 } }")
    assert tool.json("plan", tiny, "--recipe", recipe)["bound"] == "0.00783"
    recipe.write_text("step { pad_head_dim { form: PORTABLE multiple: 80 } }")
    said = tool.json("plan", tiny, "--recipe", recipe)
    assert said["sites"] == 2 and said["fidelity"] == "REASSOCIATED" and said["bound"] == "", said


def test_a_merged_adapter_is_proven_beside_itself(tool, tiny, tmp_path):
    """A manifest's own path to an adapter is not followed: whoever proves names the folder."""
    adapters.write(tmp_path / "a")
    adapters.write(tmp_path / "other", 0.02)
    merge = f'require: BOUNDED step {{ merge_lora {{ adapter: "{tmp_path}/a" }} }}'
    done = tool.forge(tiny, merge, tmp_path / "twin")
    assert done.code == 0 and "BOUNDED 2^-8" in done.out, done
    done = tool("prove", tiny, tmp_path / "twin", "--adapter", tmp_path / "a")
    assert done.code == 0, done
    done = tool("prove", tiny, tmp_path / "twin", "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "INCOMPLETE", done
    assert {row["subject"] for row in done.json["failures"]} == {"adapters", "model.layers.0.self_attn.q_proj.weight"}, done
    done = tool("prove", tiny, tmp_path / "twin", "--adapter", tmp_path / "other", "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED", done
    done = tool("unforge", tmp_path / "twin", "--out", tmp_path / "home")
    assert done.code == 3 and done.codes == ["TF1802"] and "merge_lora: 1 rewritten" in done.err, done


@pytest.mark.parametrize("keys, code, says", [
    ({"r": 8}, "TF1423", "says rank 8"), ({"target_modules": ["v_proj"]}, "TF1422", "target_modules"),
    ({"target_modules": ["q_proj", "c_attn"]}, "TF1422", "c_attn"), ({"r": "four"}, "TF1406", "adapter_config.json: "),
    ({"target_modules": ["q_proj", "v_proj"]}, "TF1422", "no matrices for model.layers.0.self_attn.v_proj"),
    ({"layers_to_transform": None}, "TF1422", "no matrices for model.layers.1.self_attn.q_proj"),
    ({"target_modules": r".*self_attn\.(q|k)_proj", "layers_to_transform": None}, "TF1422", "no matrices for model.layers.0.self_attn.k_proj"),
    ({"lora_ga_config": {"direction": "ArB2r"}}, "TF1421", '"lora_ga_config" is not merged'),
    ({"loftq_config": {"loftq_bits": 4}}, "TF1421", '"loftq_config" is not merged'), ({"velora_config": {"scale": 1.0}}, "TF1421", "velora_config"),
    ({"corda_config": {"x": 1}}, "TF1421", "corda_config"), ({"ensure_weight_tying": True}, "TF1421", "ensure_weight_tying"),
    ({"mystery.scale": 2}, "TF1421", '"mystery.scale" is not known'), ({"use_mystery": True}, "TF1421", '"use_mystery" is not known'),
    ({"r": 2**40}, "TF1406", "a whole number from 1 to 2^31"),
    ({"rank_pattern": {"q_proj": 16}}, "TF1423", "says rank 16"), ({"target_modules": [7]}, "TF1406", "target_modules"),
])
def test_an_adapter_s_config_is_held_against_its_tensors(tool, tiny, tmp_path, keys, code, says):
    adapters.write(tmp_path / "a", **keys)
    done = tool.forge(tiny, f'require: BOUNDED step {{ merge_lora {{ adapter: "{tmp_path}/a" }} }}', tmp_path / "twin")
    assert done.code in (2, 3, 4) and done.codes == [code] and says in done.err, done
    assert not list(tmp_path.glob("twin.partial*"))
