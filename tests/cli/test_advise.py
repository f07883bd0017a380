"""advise and score --against: laws of the asymmetry, refusals, and the worked example of docs/cost.md."""
import json
import math
import re
import subprocess

import pytest
from tool import BINARY, ROOT

WIDE_HEADS = 'name: "wide-heads"\nstep { pad_head_dim { form: NATIVE multiple: 128 } }\n'
PREFILL = ["--dtype", "bf16", "--chips", 16, "--phase", "prefill", "--context", 32768]


@pytest.fixture
def gpt_oss(configs):
    return configs / "gpt-oss-120b" / "config.json"


@pytest.fixture
def llama(configs):
    return configs / "llama-3.1-8b" / "config.json"


@pytest.fixture
def wide_heads(tmp_path):
    path = tmp_path / "wide-heads.textproto"
    path.write_text(WIDE_HEADS)
    return path


def asymmetry(tool, config, recipe, against, *words):
    return tool.json("score", "--from-config", config, "--chip", "v6e", "--recipe", recipe, "--against", against,
                     *words)["asymmetry"]


def test_against_itself_and_of_no_change_it_is_one(tool, gpt_oss, llama, wide_heads):
    for said in (asymmetry(tool, gpt_oss, wide_heads, "v6e", *PREFILL),
                 asymmetry(tool, llama, "tpu-exact-portable", "h100_sxm")):
        assert said["ratio"] == {"low": 1.0, "mid": 1.0, "high": 1.0} and not said["claimed"]
        assert all(rung["ratio"] == 1 and rung["factor"] == 1 for rung in said["rungs"])
        assert "nothing is claimed" in said["overturn"]["text"]


def test_factors_multiply_to_the_whole(tool, gpt_oss, wide_heads):
    said = asymmetry(tool, gpt_oss, wide_heads, "h100_sxm", *PREFILL)
    assert math.prod(rung["factor"] for rung in said["rungs"]) == pytest.approx(said["ratio"]["mid"], rel=1e-9)
    assert said["ratio"]["low"] < said["ratio"]["mid"] < said["ratio"]["high"]
    assert said["claimed"] == (said["ratio"]["low"] > 1 or said["ratio"]["high"] < 1)
    assert said["bound"]["ratio"] == said["rungs"][3]["ratio"] > 1
    assert 0 < len(said["constants"]) <= 10
    rates = {rate["dtype"]: rate for rate in said["against_rates"]}
    assert rates["bf16"]["dense"] == 989e12 and rates["bf16"]["sparse24"] == 1979e12


def test_the_ladder_is_the_asymmetry_s(tool, gpt_oss, wide_heads):
    """The ratios are those of the ladders that the same run prints."""
    said = tool.json("score", "--from-config", gpt_oss, "--chip", "v6e", "--recipe", wide_heads, "--against", "h100_sxm",
                     *PREFILL)
    for source, twin, rung in zip(said["ladder"], said["twin"]["ladder"], said["asymmetry"]["rungs"]):
        assert rung["chip"] == pytest.approx(source["seconds"] / twin["seconds"], rel=1e-12), rung


REFUSED = [
    (["--against", "h1000", "--recipe", "tpu-exact-native"], "TF1701", "h100"),
    (["--against", "h100_sxm"], "TF1003", "--recipe"),
    (["--against", "h100_sxm", "--recipe", "tpu-exact-native", "--phase", "serve"], "TF1003", "decode"),
]


@pytest.mark.parametrize("words, code, says", REFUSED)
def test_refusals_of_against(tool, llama, words, code, says):
    done = tool("score", "--from-config", llama, "--chip", "v6e", *words)
    assert done.codes == [code] and says in done.err and done.code in (2, 3), done


def test_no_ratio_where_the_source_cannot_run(tool, configs):
    said = tool.json("score", "--from-config", configs / "qwen2.5-7b" / "config.json", "--chip", "v6e", "--chips", 8,
                     "--recipe", "tpu-exact-native", "--against", "h100_sxm")
    assert said["asymmetry"]["refused"]["code"] == "TF1702" and "twin" in said


def test_worked_example_of_the_docs(tool, gpt_oss, wide_heads):
    """docs/cost.md prints what the program says, line for line."""
    text = (ROOT / "docs" / "cost.md").read_text()
    section = text[text.index("## Asymmetric advantage"):]
    shown = re.search(r"```\nasymmetric advantage.*?```", section, re.S).group(0).strip("`").strip("\n").splitlines()
    done = tool("score", "--from-config", gpt_oss, "--chip", "v6e", "--against", "h100_sxm", "--recipe", wide_heads, *PREFILL)
    out = done.out.splitlines()
    start = next(i for i, line in enumerate(out) if line.startswith("asymmetric advantage"))
    assert shown == out[start:start + len(shown)]


# ---- advise

def advise(tool, config, *words):
    said = tool.json("advise", "--from-config", config, "--chip", "v6e", *words)
    return said, {row["recipe"]: row for row in said["advice"]}


def library(tool):
    return {row["name"] for row in tool.json("recipe", "list")["recipes"]}


def test_every_library_recipe_is_judged(tool, configs):
    for config in sorted(configs.glob("*/config.json")):
        said, rows = advise(tool, config, "--dtype", "bf16", "--chips", 16, "--batch", 8, "--context", 2048)
        assert set(rows) == library(tool)
        for row in rows.values():
            assert row["verdict"] in ("recommended", "makes it run", "not recommended", "nothing to do", "refused")
            last = row["gain"]["last"]
            if last:
                assert last["low"] <= last["mid"] <= last["high"]
            if row["verdict"] == "recommended":
                layouts = row["gain"]["layouts"]
                assert row["gain"]["bounds"] >= 1 and row["compiler"] != "loss"
                assert last["low"] > 1 or last["low"] == last["high"] == 1 and layouts["low"] > 1 and row["compiler"] == "gain"
            if row["verdict"] == "refused":
                assert re.fullmatch(r"TF1\d{3}", row["refused"]["code"])


def test_layouts_are_judged_by_the_compiler_s_word(tool, llama):
    """The compiler rewards fused projections that lie [in, out]; bounds and fitted constants do not see them."""
    said, rows = advise(tool, llama, "--batch", 8, "--context", 2048)
    native = rows["tpu-exact-native"]
    assert native["verdict"] == "recommended" and native["compiler"] == "gain"
    assert native["gain"]["bounds"] == 1 and native["gain"]["last"] == {"low": 1, "mid": 1, "high": 1}
    assert all(word in native["reason"] for word in ("bounds: no change", "estimate: no change, with the compiler's word", "compiler"))
    words = {(word["rewrite"], word["of"]): word for word in native["words"]}
    assert words["orient_weights", "layer"]["source"] == "compiled rows" and words["orient_weights", "layer"]["high"] < 0
    assert rows["tpu-exact-portable"]["verdict"] == "nothing to do"
    # The term anew: R4 of layers and head, times what the compiler says of the largest word alone, or of all.
    score = tool.json("score", "--from-config", llama, "--chip", "v6e", "--batch", 8, "--context", 2048)
    seconds = {"layer": sum(sum(op["added_seconds"][:5]) for op in score["ops"] if op["path"].startswith("layers.")),
               "head": sum(sum(op["added_seconds"][:5]) for op in score["ops"] if op["op"] == "lm_head")}
    gains = {of: [word["low"] for word in native["words"] if word["of"] == of and word["sign"] < 0] for of in seconds}
    assert all(word["sign"] < 0 and word["low"] == word["high"] for word in native["words"])
    step = score["seconds"]["mid"]
    largest = step / (step + sum(seconds[of] * min(gains[of]) for of in seconds))
    every = step / (step + sum(seconds[of] * sum(gains[of]) for of in seconds))
    term = native["gain"]["layouts"]
    assert term["low"] == pytest.approx(largest, rel=1e-9) and term["mid"] == pytest.approx(largest, rel=1e-9)
    assert term["high"] == pytest.approx(every, rel=1e-9)
    # docs/cost.md shows the row.
    out = tool("advise", "--from-config", llama, "--chip", "v6e", "--batch", 8, "--context", 2048).out
    row = next(line for line in out.splitlines() if line.startswith("  tpu-exact-native "))
    assert row in (ROOT / "docs" / "cost.md").read_text()


@pytest.mark.parametrize("words, why", [(["--phase", "prefill", "--batch", 8, "--context", 2048], "the compiler decides nothing there"),
                                        (["--chips", 8, "--batch", 8, "--context", 2048], "nobody compiled eight devices")])
def test_layouts_without_the_compiler_s_word_are_not_recommended(tool, llama, words, why):
    _, rows = advise(tool, llama, *words)
    native = rows["tpu-exact-native"]
    assert native["verdict"] == "not recommended" and native["gain"]["layouts"] is None, why


def test_disagreement_shows_all_three(tool, llama, tmp_path):
    """Zeros beside every head cost bytes at the bounds, whatever the compiler says."""
    recipe = tmp_path / "wide.textproto"
    recipe.write_text('name: "wide"\nstep { pad_head_dim { form: NATIVE multiple: 256 } }\n')
    _, rows = advise(tool, llama, "--recipe", recipe, "--batch", 8, "--context", 2048)
    wide = rows["wide"]
    assert wide["verdict"] == "not recommended" and wide["gain"]["bounds"] < 1 and wide["gain"]["layouts"] is None
    assert all(word in wide["reason"] for word in ("bounds: +", "estimate: +", "compiler"))


def test_recommended_where_all_three_agree(tool, llama, tmp_path):
    """Half the bytes are a gain at the bounds and beyond the estimate's doubt, and the compiler is not against."""
    config = json.loads(llama.read_text())
    config["torch_dtype"] = "float32"
    (tmp_path / "config.json").write_text(json.dumps(config))
    recipe = tmp_path / "narrow.textproto"
    recipe.write_text('name: "narrow"\nrequire: BOUNDED\nstep { cast_weights { to: "bf16" } }\n')
    said, rows = advise(tool, tmp_path / "config.json", "--recipe", recipe, "--chips", 4, "--batch", 8)
    narrow = rows["narrow"]
    assert narrow["verdict"] == "recommended" and said["advice"][0]["recipe"] == "narrow", narrow
    assert narrow["fidelity"] == "BOUNDED" and narrow["bound"] and narrow["extra_bytes"]["parameters"] < 0
    assert narrow["gain"]["bounds"] > 1.5 and narrow["gain"]["last"]["low"] > 1


def test_a_model_that_does_not_divide_names_the_recipes_that_help(tool, configs):
    config = configs / "qwen2.5-7b" / "config.json"
    said, rows = advise(tool, config, "--chips", 8, "--batch", 8, "--context", 2048)
    assert said["source"]["refused"]["code"] == "TF1702"
    assert rows["tpu-exact-native"]["verdict"] == "makes it run" and rows["tpu-exact-native"]["seconds"] > 0
    assert rows["tpu-exact-native"]["extra_bytes"]["elements"] > 0
    done = tool("advise", "--from-config", config, "--chip", "v6e", "--chips", 8, "--batch", 8, "--context", 2048)
    assert "it runs as made by tpu-exact-native-decode or tpu-exact-native or tpu-exact-portable" in done.out, done


def test_a_model_that_does_not_fit_says_what_would(tool, gpt_oss):
    done = tool("advise", "--from-config", gpt_oss, "--chip", "v6e", "--dtype", "bf16", "--batch", 8)
    assert done.code == 0 and "no recipe changes that" in done.out and "shards would do" in done.out, done


def test_refused_places_keep_their_reasons(tool, llama, tmp_path):
    recipe = tmp_path / "groups.textproto"
    recipe.write_text('name: "own"\nstep { pad_vocab { multiple: 1000 mask: SUPPRESS_TOKENS } }\n')
    _, rows = advise(tool, llama, "--recipe", recipe)
    own = rows["own"]
    assert own["extra_bytes"]["parameters"] > 0 and own["gain"]["bounds"] < 1
    assert own["verdict"] == "not recommended"


@pytest.mark.parametrize("words, code", [(["--chip", "v99"], "TF1701"), (["--chip", "v6e", "--dtype", "fp5"], "TF1704"),
                                         (["--chip", "v6e", "--mesh", "xp=2"], "TF1720"),
                                         (["--chip", "v6e", "--stack", "nobody"], "TF1711"),
                                         (["--chip", "v6e", "--against", "h1000"], "TF1701"),
                                         (["--chip", "v6e", "--recipe", "no-such"], "TF1108")])
def test_refusals_of_advise(tool, llama, words, code):
    done = tool("advise", "--from-config", llama, *words)
    assert done.codes == [code] and done.code in (2, 3), done


def test_same_question_same_bytes(tool, llama):
    words = [BINARY, "advise", "--from-config", str(llama), "--chip", "v6e", "--against", "h100_sxm", "--format", "json"]
    first, second = (subprocess.run(words, capture_output=True, check=True).stdout for _ in range(2))
    assert first == second and json.loads(first)["schema"] == "twinforge.advise.v1"


def test_the_mesh_that_was_asked_is_said(tool, llama):
    said = tool.json("advise", "--from-config", llama, "--chip", "v5p", "--mesh", "tp=2,sp=2", "--batch", 8)
    assert said["workload"]["mesh"] == "tp=2,sp=2", said["workload"]


def test_a_mesh_that_nobody_compiled_has_no_word(tool, llama):
    """A word is of sequences and experts on one device; groups of dp do alike, each with its own."""
    def words(mesh, batch, config=llama, types=()):
        said = tool.json("advise", "--from-config", config, "--chip", "v6e", "--mesh", mesh, "--batch", batch, "--context", 2048, *types)
        row, = (row for row in said["advice"] if row["recipe"] == "tpu-exact-native")
        return row, [(word["rewrite"], word["of"], word["source"], word.get("low"), word.get("high")) for word in row["words"]]

    alone, words_alone = words("tp=1", 8)
    groups, words_groups = words("dp=2", 16)
    assert words_groups == words_alone and "each of 2 groups" in groups["words"][0]["note"]
    assert alone["compiler"] == groups["compiler"] == "gain"
    for types in (["--dtype", "int8"], ["--dtype", "f32"], ["--kv-dtype", "fp8"]):
        other, words_other = words("tp=1", 8, types=types)
        assert other["compiler"] == "unknown" and {word[2] for word in words_other} == {"unknown"}, types
        assert "bf16" in other["words"][0]["note"] and other["verdict"] != "recommended", other
    assert words("tp=1", 8, types=["--dtype", "bf16"])[1] == words_alone
    shared, words_shared = words("sp=2", 8)
    assert shared["compiler"] == "unknown" and {word[2] for word in words_shared} == {"unknown"}
    assert shared["verdict"] != "recommended" and "sp" in shared["words"][0]["note"], shared
