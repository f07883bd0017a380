"""score --sweep: every combination is the score of that recipe on that step; what nothing beats; what is refused."""
import itertools
import json
import re

import pytest
from tool import ROOT

RECIPE = """name: "widths"
step {{ pad_heads {{ multiple_of_chip: SHARDS }} }}
step {{ replicate_kv_heads {{ multiple_of_chip: SHARDS }} }}
step {{ pad_ffn {{ multiple: {ffn} shards_of_chip: SHARDS }} }}
step {{ pad_vocab {{ multiple: {vocab} mask: REFERENCE }} }}
"""
SWEEPS = """sweep { key: "pad_ffn.multiple" number: [128, 1024] }
sweep { key: "pad_vocab.multiple" range { from: 1000 to: 2048 by: 1048 } }
"""
STEP = ["--chip", "v6e", "--context", 2048]
FIDELITY = ["RETRAIN", "BOUNDED", "REASSOCIATED", "MOVED"]


@pytest.fixture
def qwen(configs):
    return ["--from-config", configs / "qwen2.5-7b" / "config.json"]


@pytest.fixture
def recipe(tmp_path):
    def write(text, name="mine.textproto"):
        (tmp_path / name).write_text(text)
        return tmp_path / name
    return write


@pytest.fixture
def widths(recipe):
    return recipe(RECIPE.format(ffn=128, vocab=128) + SWEEPS)


def covers(a, b):
    return all(x <= y for x, y in zip(a, b))


def test_it_is_every_score_and_what_nothing_beats(tool, qwen, recipe, widths):
    """The set is recomputed from scores of their own, one run for each combination."""
    said = tool.json("score", *qwen, *STEP, "--recipe", widths, "--sweep", "--vary", "mesh=tp=4", "--vary", "mesh=tp=3",
                     "--vary", "mesh=tp=8", "--vary", "batch=8,16", "--vary", "dtype=bf16,int8")
    keys = [axis["key"] for axis in said["axes"]]
    assert keys == ["pad_ffn.multiple", "pad_vocab.multiple", "mesh", "batch", "dtype"]
    every = list(itertools.product(*(axis["values"] for axis in said["axes"])))
    assert said["variants"] == len(every) == 48
    points, refused = {}, {}
    for number, values in enumerate(every):
        ffn, vocab, mesh, batch, dtype = values
        one = recipe(RECIPE.format(ffn=ffn, vocab=vocab), "one.textproto")
        words = [*qwen, *STEP, "--recipe", one, "--mesh", mesh, "--batch", batch, "--dtype", dtype]
        done = tool("score", *words, "--format", "json")
        if done.code != 0 or not done.json["twin"]["feasible"]:
            refused[number] = json.loads(done.out)["error"]["code"] if done.code else "TF1712"
            continue
        twin = done.json["twin"]
        plan = tool.json("plan", *qwen, "--chip", "v6e", "--recipe", one, "--shards", mesh.split("=")[1])
        added = sum(step["elements_added"] for step in plan["steps"])
        chips = int(mesh.split("=")[1])
        points[number] = (twin["seconds"]["mid"], twin["seconds"]["mid"] * chips / int(batch),
                          twin["memory"]["parameter_bytes"] + twin["memory"]["cache_bytes"],
                          -FIDELITY.index(plan["fidelity"]), added, 0 if dtype == "bf16" else 1)
    assert said["scored"] == len(points)
    assert {row["variant"]: row["code"] for row in said["refused"]["variants"]} == refused and refused
    assert sum(row["variants"] for row in said["refused"]["reasons"]) == len(refused)
    best = {a for a, p in points.items() if not any(covers(q, p) and q != p for q in points.values())}
    kept = {row["variant"]: row for row in said["pareto"]}
    # Of those alike in all respects the first is shown, with how many more there are.
    assert set(kept) == {a for a in best if not any(b < a and points[b] == points[a] for b in best)}
    for number, row in kept.items():
        assert list(row["values"].values()) == list(every[number])
        assert row["seconds"]["mid"] == points[number][0] and row["elements_added"] == points[number][4]
        assert row["alike"] == sum(points[b] == points[number] for b in best) - 1
    assert [row["seconds"]["mid"] for row in said["pareto"]] == sorted(row["seconds"]["mid"] for row in said["pareto"])


def test_threads_change_nothing(tool, qwen, widths):
    words = ["score", *qwen, *STEP, "--recipe", widths, "--vary", "mesh=tp=4", "--vary", "mesh=tp=8", "--vary", "batch=1..4:1", "--against", "h100_sxm"]
    for form in ("human", "json"):
        assert len({tool(*words, "--format", form, "--threads", threads).out for threads in (1, 2, 3, 16)}) == 1


def test_against_is_the_asymmetry_of_the_same_twin(tool, configs, recipe):
    """The variant's ratio is what `score --against` says of that recipe."""
    text = 'step {{ pad_head_dim {{ form: NATIVE multiple: {} }} }}\n'
    sweep = recipe(text.format(128) + 'sweep { key: "pad_head_dim.multiple" number: [64, 128] }\n')
    model = ["--from-config", configs / "gpt-oss-120b" / "config.json", "--dtype", "bf16", "--chips", 16, "--phase", "prefill", "--context", 32768]
    said = tool.json("score", *model, "--chip", "v6e", "--recipe", sweep, "--sweep", "--against", "h100_sxm")
    rows = {row["values"]["pad_head_dim.multiple"]: row for row in said["pareto"]}
    assert set(rows) == {"64", "128"}, "one is faster, the other gains more here than there"
    alone = tool.json("score", *model, "--chip", "v6e", "--recipe", recipe(text.format(128), "one.textproto"), "--against", "h100_sxm")
    assert rows["128"]["asymmetry"]["ratio"] == alone["asymmetry"]["ratio"]
    assert rows["128"]["gain"] == pytest.approx(alone["seconds"]["mid"] / alone["twin"]["seconds"]["mid"], rel=1e-12)


def test_a_step_is_switched_off(tool, qwen, widths):
    said = tool.json("score", *qwen, *STEP, "--mesh", "tp=4", "--recipe", widths, "--vary", "pad_vocab=on,off", "--vary", "pad_ffn.multiple=128",
                     "--vary", "pad_vocab.multiple=4096")
    rows = {row["values"]["pad_vocab"]: row for row in said["pareto"]}
    assert rows["off"]["elements_added"] == 0 and "on" not in rows, "padding costs bytes and gains nothing here"
    assert said["scored"] == 2


def test_flags_come_before_the_recipe(tool, qwen, widths):
    said = tool.json("score", *qwen, *STEP, "--mesh", "tp=4", "--recipe", widths, "--sweep", "--vary", "pad_ffn.multiple=256")
    assert {axis["key"]: axis["values"] for axis in said["axes"]} == {"pad_ffn.multiple": ["256"], "pad_vocab.multiple": ["1000", "2048"]}


def test_without_a_recipe_the_step_alone_varies(tool, qwen):
    said = tool.json("score", *qwen, *STEP, "--vary", "batch=1..8:1", "--vary", "kv_dtype=bf16,fp8")
    assert said["variants"] == said["scored"] == 16 and said["recipe"] is None
    assert all(row["gain"] == 1 for row in said["pareto"])
    one = tool.json("score", *qwen, *STEP, "--batch", 8, "--kv-dtype", "fp8")
    rows = {(row["values"]["batch"], row["values"]["kv_dtype"]): row for row in said["pareto"]}
    assert rows["8", "fp8"]["seconds"] == one["seconds"]


def test_one_twin_is_made_of_one_recipe(tool, tiny, widths, tmp_path):
    for words in (["plan", tiny], ["forge", tiny, "--out", tmp_path / "out"], ["score", tiny, "--chip", "v6e"]):
        done = tool(*words, "--recipe", widths)
        assert done.code == 2 and done.codes == ["TF1114"] and "score --sweep" in done.err and ":6:1" in done.err, done
    assert not (tmp_path / "out").exists()
    done = tool("recipe", "check", widths)
    assert done.code == 0 and "pad_ffn.multiple: 128, 1024" in done.out, done
    advised = tool.json("advise", "--from-config", tiny / "config.json", "--chip", "v6e", "--recipe", widths)
    assert [row["refused"]["code"] for row in advised["advice"] if row["recipe"].endswith("mine.textproto")] == ["TF1114"]


BAD = [
    ("pad_fn.multiple=3", "TF1113", 'did you mean "pad_ffn"?'), ("pad_ffn.multipel=3", "TF1113", 'did you mean "multiple"?'),
    ("pad_ffn.multiple=x", "TF1113", '"x" is no number'), ("pad_ffn.multiple=0", "TF1113", '"0" is not positive'), ("pad_ffn.multiple=-4", "TF1113", "not positive"),
    ("pad_vocab.mask=NONE", "TF1113", "none of mask's values"), ("pad_vocab.mask=MASK_UNSET", "TF1113", "none of mask's values"),
    ("pad_ffn=on,of", "TF1113", '"of" is neither on nor off'), ("pad_ffn", "TF1113", "KEY=VALUE"), ("=3", "TF1113", "KEY=VALUE"), ("batch=", "TF1113", "KEY=VALUE"),
    ("pad_ffn.multiple=8,8", "TF1113", "twice"), ("pad_ffn.multiple=9..1:1", "TF1113", "no range"), ("pad_ffn.multiple=1..9:0", "TF1113", "no range"),
    ("pad_ffn.multiple=1..99999999:1", "TF1113", "10000 values"), ("1.pad_ffn.multiple=4", "TF1113", "neither a step"), ("9.pad_ffn.multiple=4", "TF1113", "no step 9"),
    ("pad_ffn.where=4", "TF1113", "no key of one value"), ("pad_ffn.where.path=(", "TF1102", "no regular expression"), ("pad_ffn.where.last_layer=-1", "TF1113", "no layer's number"),
    ("pad_ffn.where.dtype=float32", "TF1103", "float32"), ("pad_ffn.where.path.x=4", "TF1113", "names no key"), ("context=8,16", "TF1113", "neither a step of the recipe"),
    ("batch=0", "TF1113", "must be positive"), ("batch=many", "TF1003", "many"), ("mesh=xp=2", "TF1720", "unknown mesh axis"), ("dtype=fp7", "TF1704", "nvfp4"),
]


@pytest.mark.parametrize("vary, code, says", BAD)
def test_a_bad_key_or_value_is_refused_whole(tool, qwen, widths, vary, code, says):
    done = tool("score", *qwen, *STEP, "--recipe", widths, "--vary", vary)
    assert done.code in (2, 3) and done.codes == [code] and says in done.err and "--vary" in done.err and done.out == "", done


@pytest.mark.parametrize("sweep, code, says", [
    ('sweep { }', "TF1113", "no key"), ('sweep { key: "pad_ffn.multiple" }', "TF1113", "no values"), ('sweep { kee: "x" }', "TF1101", 'did you mean "key"'),
    ('sweep { key: "pad_ffn.multiple" number: [1] word: ["a"] }', "TF1113", "several kinds"), ('sweep { key: "pad_ffn.multiple" number: [8, 8] }', "TF1113", "twice"),
    ('sweep { key: "pad_ffn.multiple" range { from: 8 to: 4 by: 1 } }', "TF1113", "no range"), ('sweep { key: "pad_ffn.multiple" range { from: 0 to: 4 by: 1 } }', "TF1505", "range.from"),
    ('sweep { key: "pad_ffn.multiple" number: [8] }\nsweep { key: "pad_ffn.multiple" number: [16] }', "TF1113", "swept twice"),
    ('sweep { key: "pad_ffn.multiple" number: [8] }\nsweep { key: "pad_fn" word: ["on"] }', "TF1113", 'did you mean "pad_ffn"'),
])
def test_a_bad_sweep_has_its_place(tool, qwen, recipe, sweep, code, says):
    path = recipe("step { pad_ffn { multiple: 128 } }\n" + sweep + "\n")
    done = tool("recipe", "check", path)
    assert done.code == 2 and done.codes == [code] and says in done.err and re.search(r"mine.textproto:[23]:\d+", done.err), done


@pytest.mark.parametrize("ends, of_key, of_flag", [
    ("9223372036854775806..9223372036854775807:1", ["TF1505"], ["TF1003"]), ("1..9223372036854775807:9223372036854775807", [], []),
    ("-9223372036854775808..9223372036854775807:1", ["TF1505"], ["TF1113"])])
def test_a_range_at_the_ends_of_the_numbers_ends(tool, qwen, recipe, ends, of_key, of_flag):
    first, last, by = re.split(r"\.\.|:", ends)
    path = recipe(f'step {{ pad_ffn {{ multiple: 128 }} }}\nsweep {{ key: "pad_ffn.multiple" range {{ from: {first} to: {last} by: {by} }} }}\n')
    assert tool("recipe", "check", path).codes == of_key
    assert tool("score", *qwen, "--chip", "v6e", "--vary", f"batch={ends}").codes == of_flag


def test_several_steps_of_one_name_need_their_position(tool, qwen, recipe):
    path = recipe('step { pad_ffn { multiple: 128 } where { last_layer: 3 } }\nstep { pad_ffn { multiple: 128 } where { first_layer: 4 } }\n')
    done = tool("score", *qwen, *STEP, "--recipe", path, "--vary", "pad_ffn.multiple=1024")
    assert done.codes == ["TF1113"] and "1.pad_ffn.multiple" in done.err, done
    said = tool.json("score", *qwen, *STEP, "--recipe", path, "--vary", "2.pad_ffn.where.first_layer=4,20", "--vary", "2.pad_ffn.multiple=1024,4096")
    assert said["variants"] == said["scored"] == 4


def test_a_sweep_of_which_nothing_is_scored(tool, qwen):
    done = tool("score", *qwen, *STEP, "--vary", "batch=100000,200000", "--format", "json")
    assert done.code == 3 and json.loads(done.out)["scored"] == 0, done


def test_what_does_not_fit_is_counted(tool, qwen):
    said = tool.json("score", *qwen, *STEP, "--vary", "batch=1,100000,200000")
    assert said["scored"] == 1 and said["refused"]["reasons"][0]["variants"] == 2 and said["refused"]["reasons"][0]["code"] == "TF1712"
    assert [row["values"]["batch"] for row in said["refused"]["variants"]] == ["100000", "200000"]


@pytest.mark.parametrize("words, code, says", [
    (["--sweep"], "TF1003", "nothing varies"), (["--vary", "batch=1,2", "--phase", "serve"], "TF1003", "does not go with --phase serve"), (["--vary", "batch=1,2", "--batch-file", "t.csv"], "TF1003", "does not go with --batch-file"),
    (["--vary", "batch=1,2", "--certificate", "c.cert"], "TF1003", "one step"), (["--vary", "batch=1,2", "--against", "h1000"], "TF1701", "h100"),
    (["--vary", "batch=1..1000:1", "--vary", "chips=1..1000:1"], "TF1113", "100000 combinations"), (["--vary", "batch=1,2", "--skip-step", "pad_ffn"], "TF1003", "without --recipe"),
])
def test_flags_that_do_not_go_with_a_sweep(tool, qwen, words, code, says):
    done = tool("score", *qwen, *STEP, *words)
    assert done.code in (2, 3) and done.codes == [code] and says in done.err, done


def test_the_example_of_the_docs(tool, configs, recipe):
    """docs/recipes.md prints what the program says, line for line."""
    text = (ROOT / "docs" / "recipes.md").read_text()
    block = re.search(r"```\n(name: \"experts\".*?)```\n.*?```\n(\$ .*?)```", text, re.S)
    path = recipe(block.group(1))
    command, *shown = block.group(2).strip().splitlines()
    words = command.replace("$ twinforge ", "").replace("experts.textproto", str(path)).replace("config.json", str(configs / "qwen3-30b-a3b" / "config.json")).split()
    done = tool(*words)
    assert done.out.splitlines() == shown, done
