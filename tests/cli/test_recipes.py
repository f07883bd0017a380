"""Recipe mistakes: each with its code, its place and its hint, found before any tensor is read."""
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
    ('step { pad_ffn { } }', "TF1505", ["multiple"]),
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
