"""Recipe mistakes: each with its code, its place and its hint, found before any tensor is read."""
import json

import adapters
import pytest

BAD = [
    # text, code, what the message must say
    ('step { pad_vocab { multipel: 128 } }', "TF1101", [":1:", "multipel", 'did you mean "multiple"']),
    ('step { pad_vocab { multiple: 128 } }\nstep { pad_vocb { } }', "TF1101", [":2:8", "pad_vocb", 'did you mean "pad_vocab"']),
    ('step { pad_head_dim { form: PORTABEL multiple: 128 } }', "TF1101", ["PORTABEL"]),
    ('step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } where { path: "(" } }', "TF1102", ["where.path", "regular expression"]),
    ('step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } where { op: "atention" } }', "TF1103", ["atention", 'did you mean "attention"']),
    ('step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } where { dtype: "float32" } }', "TF1103", ["float32"]),
    ('step { }', "TF1104", ["names no transform"]),
    ('name: "empty"', "TF1104", ["no step"]),
    ('step { use: "tpu-exact-portable" pad_ffn { multiple: 64 } }', "TF1104", ["either"]),
    ('step { use: "tpu-exact-portabel" }', "TF1108", ['did you mean "tpu-exact-portable"']),
    ('step { pad_ffn { multiple: 64 } where { path: "layers\\\\.7\\\\.mlp" } }', "TF1105", ["layers", "nearest places"]),
    ('step { pad_ffn { multiple: 128 } }\nstep { pad_ffn { multiple: 64 } }', "TF1106", [":2:1", "1 pad_ffn"]),
    ('step { cast_weights { to: "f16" } }', "TF1107", ["BOUNDED", "REASSOCIATED"]),
    ('step { pad_ffn { multiple: 64 } where { expect: COUNT count: 9 } }', "TF1109", ["expected 9"]),
    ('step { pad_ffn { multiple: -4 } }', "TF1505", ["multiple"]),
    ('step { pad_ffn { } }', "TF1505", ["multiple", "is missing"]),
    # What the text format takes without a word: a count of nothing, a choice by number, a layer below the first.
    ('step {\n pad_ffn { multiple: 0 } }', "TF1505", [":2:12: pad_ffn.multiple: is 0; it must be positive"]),
    ('step { pad_ffn { multiple: 8 shards: -1 } }', "TF1505", [":1:30: pad_ffn.shards: is -1"]),
    ('step { group_experts { size: 0 } }', "TF1505", ["group_experts.size: is 0"]),
    ('require: RETRAIN step { keep_n_of_m { keep: 2 of: 4 along: "in" stride: 0 } }', "TF1505", ["keep_n_of_m.stride: is 0"]),
    ('step { pad_head_dim { form: 7 multiple: 128 } }', "TF1101", [":1:23: pad_head_dim.form: 7 is none of its values", "NATIVE, PORTABLE"]),
    ('step { pad_head_dim { form: FORM_UNSET multiple: 128 } }', "TF1101", ["FORM_UNSET is none of its values"]),
    ('step { pad_ffn { multiple_of_chip: 9 } }', "TF1101", ["pad_ffn.multiple_of_chip: 9 is none", "LANES, MXU, SHARDS, KERNEL"]),
    ('require: 9 step { pad_ffn { multiple: 8 } }', "TF1101", [":1:1: require: 9 is none of its values"]),
    ('step { pad_ffn { multiple: 8 } where { first_layer: -1 } }', "TF1103", [":1:40: where.first_layer: is -1; layers are numbered from 0"]),
    ('step { pad_ffn { multiple: 8 } where { last_layer: -9 } }', "TF1103", ["where.last_layer: is -9"]),
    ('step { pad_ffn { multiple: 8 } where { expect: 8 } }', "TF1101", ["where.expect: 8 is none", "SOME, ALL, NONE, COUNT"]),
    ('step { pad_ffn { multiple: 8 } where { expect: COUNT count: -2 } }', "TF1103", ["where.count: is -2"]),
    # Names and patterns that mean nothing in any model, or nothing in this one.
    ('step { orient_weights { in_out: "o|dwon" } }', "TF1105", [":1:1: orient_weights.in_out: ", '"dwon"', 'did you mean "down"?']),
    ('step { orient_weights { out_in: "qq" } }', "TF1105", ["orient_weights.out_in", '"qq"']),
    ('step { orient_weights { in_out: "router" } }', "TF1105", ["names no kernel of this model"]),
    ('step { orient_weights { in_out: "o" out_in: "(gaet|upp)" } }', "TF1105", ["orient_weights.out_in"]),
    ('step { shard_by_role { shards: 2 role: "gaet|up" } }', "TF1105", ["shard_by_role.role", 'did you mean "gate"?']),
    ('step { shard_by_role { shards: 2 axis: "hedas" } }', "TF1105", ["shard_by_role.axis", 'did you mean "heads"?']),
    ('step { shard_by_role { shards: 2 axis: "expert" } }', "TF1105", ["no parameter of this model"]),
    ('step { shard_by_role { shards: 2 role: "norm" } }', "TF1105", ["no parameter of this model"]),
    ('step { use: "/elsewhere/mine" }', "TF1108", ["written out"]),
    ('require: BOUNDED\nstep { merge_lora { adapter: "/no/adapter/here" } }', "TF1420", [":2:1: /no/adapter/here: ", "adapter_config.json"]),
    ('step { keep_n_of_m { keep: 5 of: 4 along: "in" stride: 1 } }\nrequire: RETRAIN', "TF1505", ["keep"]),
    ('step { cast_weights { to: "bf61" } }\nrequire: BOUNDED', "TF1505", ["bf61"]),
]


@pytest.mark.parametrize("text, code, words", BAD)
def test_mistakes(tool, tiny, tmp_path, text, code, words):
    recipe = tmp_path / "mine.textproto"
    recipe.write_text(text)
    for verb in (["plan"], ["forge", "--out", tmp_path / "out"]):
        done = tool(verb[0], tiny, "--recipe", recipe, *verb[1:])
        assert done.code == 2 and done.codes == [code], done
        for word in words:
            assert word in done.err, done
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.textproto"]


def test_a_name_that_means_nothing_here_may_be_expected_to(tool, tiny, tmp_path):
    recipe = tmp_path / "mine.textproto"
    recipe.write_text('step { orient_weights { in_out: "router" } where { expect: NONE } } step { orient_weights { in_out: "o|router|qkv" } }')
    said = tool.json("plan", tiny, "--recipe", recipe)
    assert [len(step["sites"]) for step in said["steps"]] == [0, 2], said
    recipe.write_text('step { orient_weights { in_out: ".*_no" } }')
    assert tool("plan", tiny, "--recipe", recipe).codes == ["TF1105"]


def test_one_pattern_of_two_may_name_nothing(tool, tmp_path):
    """The library's recipe lays q, k and v, and latent attention has none of them."""
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "dtype": "bfloat16", "hidden_size": 48, "intermediate_size": 56, "vocab_size": 97,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8, "v_head_dim": 20, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
        "moe_intermediate_size": 24, "first_k_dense_replace": 1, "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 64}))
    words = ["plan", "--from-config", tmp_path / "config.json", "--recipe"]
    assert tool.json(*words, "tpu-exact-native")["sites"] > 0
    recipe = tmp_path / "mine.textproto"
    recipe.write_text('step { orient_weights { out_in: "q|k|v" } }')
    done = tool(*words, recipe)
    assert done.code == 2 and done.codes == ["TF1105"] and "the step names no kernel of this model" in done.err, done


def test_a_hint_names_no_path_that_is_none(tool, tmp_path):
    recipe = tmp_path / "mine.textproto"
    recipe.write_text('step { use: "/elsewhere/mine" }')
    assert ".//" not in tool("recipe", "check", recipe).err


def test_the_note_names_the_step_that_laid_it_so(tool, tiny):
    """A later step that changed the same node is not to blame."""
    said = tool.json("plan", tiny, "--recipe", "tpu-exact-native", "--shards", 2)
    step = next(row["step"] for row in said["steps"] if row["sites"] and row["step"].split()[1] in ("fuse_qkv", "orient_weights", "fuse_gate_up", "stack_layers"))
    kinds = {"fused": "fuse_", "[in, out]": "orient_weights", "stacked": "stack_layers"}
    blamed = [kind for word, kind in kinds.items() if word in said["note"]]
    assert step and "after step" in said["note"] and blamed and any(kind in said["note"].split("after step")[1].split(":")[0] for kind in blamed), said["note"]


def test_library_recipes_say_already_native(tool, tiny, tmp_path):
    """Applied to its own twin a library recipe finds nothing left to do."""
    twin = tmp_path / "twin"
    assert tool.forge(tiny, "tpu-exact-portable", twin, "--to", "hf").code == 0
    said = tool.json("plan", twin, "--recipe", "tpu-exact-portable")
    assert said["already_native"] and said["sites"] == 0
    assert "already native" in tool("plan", twin, "--recipe", "tpu-exact-portable").out


def test_skipping_a_step(tool, tiny):
    every = tool.json("plan", tiny, "--recipe", "tpu-exact-portable")
    less = tool.json("plan", tiny, "--recipe", "tpu-exact-portable", "--skip-step", "pad_vocab")
    assert len(less["steps"]) == len(every["steps"]) - 1 and less["bytes_out"] < every["bytes_out"]
    done = tool("plan", tiny, "--recipe", "tpu-exact-portable", "--skip-step", "pad_vocb")
    assert done.code == 2 and done.codes == ["TF1111"] and 'did you mean "pad_vocab"' in done.err, done


def test_parameters_beyond_reason(tool, tiny, tmp_path):
    """Sizes that no machine has are refused before they are multiplied, searched or allocated."""
    recipe = tmp_path / "mine.textproto"
    for step in ("pad_ffn { multiple: 8 shards: 4611686018427387904 }", "pad_heads { multiple: 1000000007 }", "pad_vocab { multiple: 4611686018427387904 }",
                 "pad_head_dim { form: PORTABLE multiple: 9223372036854775807 }", "replicate_kv_heads { to_multiple: 4611686018427387904 }",
                 "group_experts { size: 4611686018427387904 }", "fuse_qkv { shards: 9223372036854775807 }",
                 'keep_n_of_m { keep: 2 of: 4 along: "in" stride: 4611686018427387904 }', 'keep_n_of_m { keep: 2 of: 4611686018427387904 along: "in" }'):
        recipe.write_text("require: RETRAIN step { %s }" % step)
        done = tool("plan", tiny, "--recipe", recipe)
        refused = done.code == 0 and ("refused" in done.out or "nothing to do" in done.out)
        assert refused or (done.code == 2 and done.codes == ["TF1505"]), (step, done)


def test_adapters_come_first(tool, tiny, tmp_path):
    """An adapter fits its kernels as published: after a step that rewrote them it is refused, never merged wrongly."""
    adapters.write(tmp_path / "a")
    merge = f'step {{ merge_lora {{ adapter: "{tmp_path}/a" }} }}'
    recipe = tmp_path / "mine.textproto"
    for step in ("fold_norm_scale { }", "reorder_rope { style: TO_INTERLEAVED }", "pad_heads { multiple: 8 }", "pad_head_dim { form: PORTABLE multiple: 32 }"):
        recipe.write_text(f"require: BOUNDED step {{ {step} }} {merge}")
        said = tool.json("plan", tiny, "--recipe", recipe, "--to", "twin")
        assert any("put merge_lora first" in row["reason"] for row in said["refused"]), said
        recipe.write_text(f"require: BOUNDED {merge} step {{ {step} }}")
        said = tool.json("plan", tiny, "--recipe", recipe, "--to", "twin")
        assert said["steps"][0]["sites"] and not [row for row in said["refused"] if "merge_lora" in row["step"]], said


def test_a_stack_changes_whole_or_not_at_all(tool, tiny, tmp_path):
    """A step that `where` keeps to some layers of a stack is refused there, and no mistake of ours (TF1501)."""
    recipe = tmp_path / "mine.textproto"
    recipe.write_text('step { stack_layers { } } step { pad_ffn { multiple: 128 } where { path: "layers\\\\.0\\\\.mlp" } }')
    said = tool.json("plan", tiny, "--recipe", recipe)
    assert [(row["role"], row["reason"]) for row in said["refused"]] == [
        ("layers.0.mlp", "only some layers of layers.0-1.mlp.gate would change")], said["refused"]
    recipe.write_text('step { stack_layers { } } step { pad_ffn { multiple: 128 } }')
    assert tool.json("plan", tiny, "--recipe", recipe)["refused"] == []
