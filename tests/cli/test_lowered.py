"""Models written out as primitives: each verb gives the right result, or one diagnostic."""
import pytest
from test_eval_verb import IDS, read, write

LOWER = "step { lower_composites { } }"
LOWER_PART = 'step { lower_composites { op: "attention" op: "rms_norm" op: "embedding" } }'
RAISE = "step { raise_composites { } }"
ABSORB = "require: BOUNDED " + LOWER + " step { absorb_weight_ops { } }"


def text_of(recipe, tmp_path):
    path = tmp_path / "recipe.textproto"
    path.write_text(recipe)
    return path


@pytest.mark.parametrize("recipe", [LOWER, LOWER_PART, ABSORB])
def test_a_lowered_twin_is_proven_and_evaluated_and_goes_home(tool, tiny, tmp_path, recipe):
    twin = tmp_path / "twin"
    done = tool.forge(tiny, recipe, twin, "--to", "twin")
    assert done.code == 0 and "config.json is not written" in done.err + done.out, done
    assert not (twin / "config.json").exists()
    assert " of attention {scale" in (twin / "twin.manifest.textproto").read_text()
    proof = tool("prove", tiny, twin)
    assert proof.code == 0 and "algebra PROVEN" in proof.out, proof
    ids = write(tmp_path / "ids.safetensors", input_ids=IDS)
    for model, out in ((tiny, "a"), (twin, "b")):
        done = tool("eval", model, "--inputs", ids, "--out", tmp_path / out, "--dtype", "f64", "--hidden-states")
        assert done.code == 0, done
    assert read(tmp_path / "a") == read(tmp_path / "b")
    assert tool("unforge", twin, "--out", tmp_path / "home").code == 0
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "home" / name).read_bytes() == (tiny / name).read_bytes()


def test_a_lowered_twin_takes_tokens_from_the_first(tool, tiny, tmp_path):
    assert tool.forge(tiny, LOWER, tmp_path / "twin", "--to", "twin").code == 0
    moved = write(tmp_path / "moved.safetensors", input_ids=IDS, position_ids=("I64", [2, 3], [0, 7, 8] * 2))
    done = tool("eval", tmp_path / "twin", "--inputs", moved, "--out", tmp_path / "out")
    assert done.code == 2 and done.codes == ["TF1901"] and "counts tokens from 0" in done.err, done


@pytest.mark.parametrize("recipe", [LOWER, LOWER_PART])
def test_no_config_says_primitives(tool, tiny, tmp_path, recipe):
    """For `--to hf` the step is undone, each of its places refused with the reason, and the source's form is written."""
    done = tool.forge(tiny, recipe, tmp_path / "twin", "--to", "hf")
    assert done.code == 0 and "0 sites rewritten" in done.out, done
    assert "is a primitive (param), and a config names whole blocks; raise_composites folds them back" in done.out, done
    source, written = read(tiny / "model.safetensors"), read(tmp_path / "twin" / "model.safetensors")
    assert source == written and (tmp_path / "twin" / "config.json").exists()


def test_no_count_is_known_for_primitives(tool, tiny, tmp_path):
    done = tool("score", tiny, "--recipe", text_of(LOWER, tmp_path), "--chip", "v6e", "--batch", "8", "--context", "64")
    assert done.code != 0 and done.codes == ["TF1705"] and done.out == "", done


def test_lowered_and_raised_is_what_it_was(tool, tiny, tmp_path):
    """The same files but for the recipe's record, the same score, the same plan."""
    plain, twin = tmp_path / "plain", tmp_path / "twin"
    assert tool.forge(tiny, "step { pad_ffn { multiple: 1 } }", plain, "--to", "twin").code == 0
    assert tool.forge(tiny, LOWER + RAISE, twin, "--to", "twin").code == 0
    for name in ("config.json", "model.safetensors"):
        assert (plain / name).read_bytes() == (twin / name).read_bytes(), name
    assert tool("prove", tiny, twin).code == 0
    words = ("--chip", "v6e", "--batch", "8", "--context", "64")
    scores = []
    for recipe in ("step { pad_ffn { multiple: 1 } }", LOWER + RAISE):
        scores.append(tool.json("score", tiny, "--recipe", text_of(recipe, tmp_path), *words))
    assert scores[0]["ladder"] == scores[1]["ladder"] and scores[0]["memory"] == scores[1]["memory"]


def test_primitives_have_no_slots(tool, tiny, tmp_path):
    rewritten = []
    for recipe in (LOWER, LOWER + RAISE):
        recipe = text_of(recipe + "step { pad_ffn { multiple: 128 } }", tmp_path)
        rewritten.append(len(tool.json("plan", tiny, "--recipe", recipe, "--to", "twin")["steps"][-1]["sites"]))
    assert rewritten == [0, 2]


def test_a_cast_is_refused_among_primitives(tool, tiny, tmp_path):
    recipe = "require: BOUNDED " + LOWER + 'step { cast_weights { to: "f32" } }'
    done = tool("plan", tiny, "--recipe", text_of(recipe, tmp_path), "--to", "twin")
    assert done.code == 0 and "primitives read it as it is" in done.out, done


@pytest.mark.parametrize("op", ["rms_norm", "lm_head", "gated_mlp"])
def test_a_model_lowered_in_part_and_cast_is_proven(tool, tiny, tmp_path, op):
    recipe = f'require: BOUNDED step {{ lower_composites {{ op: "{op}" }} }} step {{ cast_weights {{ to: "f16" }} }}'
    assert tool.forge(tiny, recipe, tmp_path / "twin", "--to", "twin").code == 0
    done = tool("prove", tiny, tmp_path / "twin")
    assert done.code == 0 and "claims PROVEN" in done.out, done
