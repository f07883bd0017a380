"""What is refused is refused with its place and its status, and leaves nothing behind."""
import json
import os
import resource
import shutil

import pytest

PAD_VOCAB = "step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } }"
PAD_FFN = "step { pad_ffn { multiple: 128 } }"
FOLD = "require: BOUNDED step { fold_norm_scale {} }"


@pytest.fixture
def copy(tiny, tmp_path):
    folder = tmp_path / "source"
    shutil.copytree(tiny, folder)
    return folder


def left_by(tmp_path, name):
    return [path.name for path in tmp_path.glob(name + "*") if not path.name.endswith(".recipe.textproto")]


@pytest.mark.parametrize("content, place, says", [
    ("[]", "generation_config.json: ", "is no object"),
    ("null", "generation_config.json: ", "is no object"),
    ('{"suppress_tokens": "all"}', "generation_config.json: suppress_tokens: ", "no list"),
    ('{"suppress_tokens": [1, -3]}', "suppress_tokens[1]: ", "-3"),
    ('{"suppress_tokens": [99999999999999999999]}', "suppress_tokens[0]: ", "99999999999999999999"),
    ('{"suppress_tokens": [1.5]}', "suppress_tokens[0]: ", "1.5"),
    ('{"suppress_tokens": [97]}', "suppress_tokens[0]: ", "vocabulary of 97"),
])
def test_a_generation_config_that_cannot_be_added_to(tool, copy, tmp_path, content, place, says):
    (copy / "generation_config.json").write_text(content)
    done = tool.forge(copy, PAD_VOCAB, tmp_path / "out")
    assert done.code == 4 and done.codes == ["TF1415"] and place in done.err and says in done.err and "hint" in done.err, done
    assert left_by(tmp_path, "out") == []
    # Where nothing is added it is nobody's business, and travels byte for byte, both ways.
    assert tool.forge(copy, PAD_FFN, tmp_path / "twin").code == 0
    assert (tmp_path / "twin" / "generation_config.json").read_text() == content
    assert tool("prove", copy, tmp_path / "twin").code == 0
    assert tool("unforge", tmp_path / "twin", "--out", tmp_path / "home").code == 0
    assert (tmp_path / "home" / "generation_config.json").read_text() == content


def test_a_generation_config_is_extended(tool, copy, tmp_path):
    (copy / "generation_config.json").write_text('{"suppress_tokens": [5], "top_k": 7}')
    assert tool.forge(copy, PAD_VOCAB, tmp_path / "out").code == 0
    said = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert said == {"suppress_tokens": [5, *range(97, 128)], "top_k": 7}


def test_the_source_s_readme_comes_home(tool, copy, tmp_path):
    card = b"---\nlicense: mit\n---\n# Mine\r\n\xff"
    (copy / "README.md").write_bytes(card)
    assert tool.forge(copy, "tpu-exact-native", tmp_path / "twin", "--to", "twin").code == 0
    assert (tmp_path / "twin" / "README.source.md").read_bytes() == card
    assert "TPU twin" in (tmp_path / "twin" / "README.md").read_text()
    assert tool("prove", copy, tmp_path / "twin").code == 0
    assert tool("unforge", tmp_path / "twin", "--out", tmp_path / "home").code == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "home").iterdir()} == {path.name: path.read_bytes() for path in copy.iterdir()}


def test_no_room_leaves_nothing(tool, tiny, tmp_path):
    """No room for the first file: nothing was written that a later run could go on with."""
    recipe = tmp_path / "ffn.textproto"
    recipe.write_text(PAD_FFN)
    done = tool("forge", tiny, "--recipe", recipe, "--out", tmp_path / "out", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    assert done.code == 5 and done.codes == ["TF1605"], done
    assert left_by(tmp_path, "out") == [] and "stays valid" not in done.err, done


def test_a_missing_parent_is_named_as_typed(tool, tiny, tmp_path):
    done = tool.forge(tiny, "tpu-exact-portable", tmp_path / "no" / "such" / "out")
    assert done.code == 2 and done.codes == ["TF1607"], done
    assert f"{tmp_path}/no/such/out: " in done.err and f"mkdir -p {tmp_path}/no/such" in done.err and "partial" not in done.err, done
    (tmp_path / "file").write_text("")
    done = tool.forge(tiny, "tpu-exact-portable", tmp_path / "file" / "out")
    assert done.code == 2 and done.codes == ["TF1607"] and "no folder" in done.err, done


def test_a_recipe_that_is_no_recipe_is_a_mistake_of_usage(tool, tiny, tmp_path):
    os.mkfifo(tmp_path / "fifo.textproto")
    (tmp_path / "huge.textproto").write_text("# " + "x" * (1 << 21))
    (tmp_path / "folder.textproto").mkdir()
    for name in (tmp_path / "fifo.textproto", tmp_path / "huge.textproto", tmp_path / "folder.textproto", "/dev/zero"):
        for words in (["plan", tiny, "--recipe", name], ["recipe", "check", name]):
            done = tool(*words)
            assert done.code == 2 and done.codes == ["TF1112"] and str(name) in done.err, done
    assert tool("plan", tiny, "--recipe", tmp_path / "absent.textproto").code == 2


def test_a_source_that_cannot_come_home_says_why_and_what_to_do(tool, tiny, tmp_path):
    assert tool.forge(tiny, FOLD, tmp_path / "twin").code == 0
    done = tool("unforge", tmp_path / "twin", "--out", tmp_path / "home")
    assert done.code == 3 and done.codes == ["TF1802"], done
    assert "input_layernorm.weight" in done.err and "arithmetic with another tensor" in done.err, done
    assert "--skip-step" in done.err and "fold_norm_scale: 4 rewritten" in done.err, done
    assert left_by(tmp_path, "home") == []


def test_what_a_terminal_obeys_is_shown(tool, tmp_path):
    """A config's words reach the terminal as text: no escape is obeyed, no NUL ends the sentence, none is endless."""
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "\\u001b[31mX\\u0000y"}')
    done = tool("inspect", "--from-config", config)
    assert "\x1b" not in done.err and "\\u001b[31mX\\u0000y" in done.err and "hint: " in done.err, done
    done = tool("inspect", tmp_path / "a\x1b[31mb")
    assert "\x1b" not in done.err and "a\\x1b[31mb" in done.err, done
    config.write_text('{"model_type": "' + "x" * 100000 + '"}')
    assert len(tool("inspect", "--from-config", config).err) < 6000


@pytest.mark.parametrize("words, says", [
    (("recipe", "check"), "RECIPE is required"), (("recipe", "show"), "RECIPE is required"), (("recipe", "check", ""), "RECIPE is required"),
    (("chip", "show"), "ID is required"), (("recipe", "list", "x"), "takes no RECIPE"), (("recipe", "schema", "x"), "takes no RECIPE"),
    (("chip", "list", "v6e"), "takes no ID"), (("chip", "lint", "v6e"), "takes no ID"),
    (("inspect",), "no model was named"), (("plan", "--recipe", "x"), "no model was named"), (("score", "--chip", "v6e"), "no model was named"),
    (("eval", "--inputs", "x", "--out", "y"), "no model was named"), (("forge", "--recipe", "x", "--out", "y"), "no model was named"),
    (("forge", "m", "--out", "y"), "--recipe is required"), (("forge", "m", "--recipe", "x"), "--out is required"),
    (("prove",), "SOURCE is required"), (("prove", "m"), "TWIN is required"), (("unforge",), "TWIN is required"), (("unforge", "t"), "--out is required"),
    (("eval", "m"), "--inputs is required"), (("score", "m"), "--chip is required"), (("doctor", "x"), "not expected"), (("explain", "1001", "x"), "not expected"),
])
def test_a_missing_or_idle_argument_is_usage(tool, words, says):
    done = tool(*words, "--format", "json")
    assert done.code == 2 and done.json["error"]["code"] in ("TF1001", "TF1003") and says in done.err, done
