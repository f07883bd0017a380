"""`compile MODEL`: the parts of source and twin, the record beside the twin, and what prove and score make of it."""
import json
import re
import shutil

import pytest
from tool import ROOT

STEP = ["--batch", "8", "--context", "64"]
CONFIGS = ROOT / "samples" / "configs"


@pytest.fixture(scope="session")
def source():
    return ROOT / "samples" / "tiny-llama"


@pytest.fixture(scope="session")
def twin(tool, source, tmp_path_factory):
    out = tmp_path_factory.mktemp("twin") / "twin"
    done = tool.forge(source, "tpu-exact-native", out, "--to", "twin")
    assert done.code == 0, done
    return out


@pytest.fixture(scope="session")
def report(tool, twin):
    return tool.json("compile", twin, "--topology", "v5e:2x2", *STEP)


def test_parts_are_counted_as_often_as_the_model_has_them(report):
    for side in ("twin", "source"):
        modules = {row["kind"]: row for row in report[side]["modules"]}
        assert set(modules) == {"embedding", "layers.0", "head"} and modules["layers.0"]["count"] == 2, modules
        total = report[side]["total"]
        for key in ("cycles", "argument_bytes", "output_bytes", "copy_cycles"):
            assert total[key] == sum(row["count"] * row[key] for row in modules.values()), key
        for key in ("copies", "collectives", "uncounted"):
            assert total[key] == sum(row["count"] * (len(row[key]) if key == "copies" else sum(one["count"] for one in row[key])) for row in modules.values()), key
        assert total["temp_bytes"] == max(row["temp_bytes"] for row in modules.values())


def test_arguments_have_the_names_of_weights_and_caches(report):
    layer = next(row for row in report["twin"]["modules"] if row["kind"] == "layers.0")
    kinds = {}
    for row in layer["layouts"]:
        kinds.setdefault(row["kind"], []).append(row["name"])
    assert any("gate_up" in name for name in kinds["weight"]) and len(kinds["cache"]) == 2, kinds


def test_memory_is_what_the_tile_rule_says(report):
    for side in ("twin", "source"):
        for row in report[side]["modules"]:
            assert row["memory"]["agrees"], row["memory"]


def agrees(predicted):
    """Weights and caches of a device within 5 % of what the cost model counts."""
    return all(abs(predicted[what]["off"]) <= 0.05 for what in ("weights", "cache"))


def test_memory_is_what_the_cost_model_counts(report):
    """Tensors that a twin has fused are padded as one, which matters where they are tiny."""
    for side in ("twin", "source"):
        assert agrees(report[side]["predicted"]), report[side]["predicted"]
        assert report[side]["predicted"]["collectives"] == {"compiled": 0, "predicted": 0, "off": None}


def test_the_record_says_nothing_of_the_machine_or_the_hour(tool, twin, report):
    record = twin / "compile.record.textproto"
    text = record.read_text()
    assert str(twin) not in text and report["record"] == str(record)
    again = tool("compile", twin, "--topology", "v5e:2x2", *STEP)
    assert again.code == 0 and record.read_text() == text


def test_prove_takes_a_twin_as_attainable_with_its_record_alone(tool, source, twin, report, tmp_path):
    done = tool.json("prove", source, twin, "--attainable", "--progress", "none")
    assert done["attainable"] == {"attainable": True, "reason": ""} and done["verdict"] == "PROVEN"
    copy = tmp_path / "copy"
    shutil.copytree(twin, copy)
    record = copy / "compile.record.textproto"
    text = record.read_text()
    first = text.split('program_sha256: "')[1][:64]
    refused = re.sub(r'(  modules {\n    kind: "head"\n    count: 1\n    program_sha256: "\w+")(\n    .*)*\n    (partitions: 1\n)', r'\1\n    error: "no room"\n    \3', text, count=1)
    assert refused != text
    for damaged, reason, code in ((text.replace(first, "0" * 64), "another program", "TF2109"), (refused, "refuses head: no room", None),
                                  (text.replace("batch: 8", "batch: 7"), "another program", "TF2109"), (None, "no compile record", None)):
        record.unlink() if damaged is None else record.write_text(damaged)
        done = tool.json("prove", source, copy, "--attainable", "--progress", "none", code=1)
        assert not done["attainable"]["attainable"] and reason in done["attainable"]["reason"], done["attainable"]
        assert done["attainable"].get("code") == code
        assert done["verdict"] == "PROVEN"  # what it computes is another question
    record.write_text(text[: len(text) // 2])
    cut = tool("prove", source, copy, "--attainable", "--progress", "none")
    assert cut.code == 4 and cut.codes == ["TF2108"], cut
    record.unlink()
    assert tool("prove", source, copy, "--progress", "none").code == 0


def test_score_shows_the_compiled_rung(tool, twin, report):
    words = ["score", twin, "--phase", "decode", "--compiled", twin / "compile.record.textproto"]
    done = tool.json(*words, "--chip", "v5e", *STEP)
    compiled = done["compiled"]
    assert compiled["cycles"] == report["twin"]["total"]["cycles"] and compiled["class"] == "C"
    assert compiled["seconds"] == compiled["cycles"] / compiled["clock"]
    rungs = {row["rung"]: row["seconds"] for row in done["twin"]["ladder"]}
    assert compiled["over"] == {name: pytest.approx(compiled["seconds"] / rungs[name]) for name in ("R2", "R3", "R4")}
    assert min(compiled["over"]["R2"], compiled["over"]["R3"]) >= 1, "below a bound"
    for chip, batch, context in (("v6e", 8, 64), ("v5e", 4, 64), ("v5e", 8, 128)):
        refused = tool(*words, "--chip", chip, "--batch", batch, "--context", context)
        assert refused.code == 2 and refused.codes == ["TF2109"], refused


def test_a_record_is_of_one_mesh_and_of_the_models_own_types(tool, twin, report):
    words = ["score", twin, "--phase", "decode", "--compiled", twin / "compile.record.textproto", "--chip", "v5e", *STEP]
    for extra, code in (["--mesh", "dp=2"], "TF2109"), (["--mesh", "sp=2"], "TF2109"), (["--kv-dtype", "fp8"], "TF1003"), (["--dtype", "int8"], "TF1003"):
        refused = tool(*words, *extra)
        assert refused.code == 2 and refused.codes == [code], refused


FALSE = {
    "cycles below zero": (r"(\n    cycles: )\d+", r"\g<1>-5"),
    "no time for its weights": (r'(kind: "layers.0"(?:.|\n)*?\n    cycles: )\d+((?:.|\n)*?\n    copy_cycles: )\d+', r"\g<1>1\g<2>1"),
    "a count below zero": (r"(\n    count: )2", r"\g<1>-2"),
    "a copy's cycles": (r"(\n    copy_cycles: )\d+", r"\g<1>123456"),
    "bytes beyond all": (r"(\n    argument_bytes: )\d+", r"\g<1>9000000000000000000"),
    "fewer bytes than there are": (r"(\n    argument_bytes: )\d+", r"\g<1>7"),
    "another chip": (r'chip: "v5e"', 'chip: "v6e"'),
    "another topology": (r'topology: "v5e:2x2"', 'topology: "v6e:2x2"'),
    "a topology that is none": (r'topology: "v5e:2x2"', 'topology: "v5e:2x2x9"'),
    "other devices": (r"devices: 4", "devices: 5"),
    "other shards": (r"\nshards: 1", r"\nshards: 4"),
    "a hash that is none": (r'program_sha256: "\w+"', 'program_sha256: "abc"'),
}
OTHER = {
    "a part is missing": (r'(twin {(?:.|\n)*?)  modules {\n    kind: "head"(?:.|\n)*?\n  }\n', r"\1"),
    "a part is another": (r'kind: "head"', 'kind: "tail"'),
    "a part more often": (r"(\n    count: )2", r"\g<1>20"),
    "the program is another": (r'program_sha256: "\w+"', 'program_sha256: "%s"' % ("0" * 64)),
    "the graph is another": (r'graph_sha256: "\w+"', 'graph_sha256: "%s"' % ("0" * 64)),
    "an argument is another": (r'name: "layers.0.mlp.gate_up"', 'name: "layers.0.mlp.up_gate"'),
}


@pytest.mark.parametrize("name", [*FALSE, *OTHER])
def test_a_record_is_not_believed(tool, source, twin, report, tmp_path, name):
    """What a record says is recomputed as far as it can be, by both verbs that read it."""
    find, put = {**FALSE, **OTHER}[name]
    text = (twin / "compile.record.textproto").read_text()
    changed = re.sub(find, put, text, count=1)
    assert changed != text
    record = tmp_path / "record"
    record.write_text(changed)
    code, exit_code = ("TF2111", 4) if name in FALSE else ("TF2109", 2)
    scored = tool("score", twin, "--phase", "decode", "--chip", "v5e", *STEP, "--compiled", record)
    assert scored.code == exit_code and scored.codes == [code], scored
    if name == "the graph is another":
        return  # `prove` looks at the programs, which are the twin's
    copy = tmp_path / "copy"
    shutil.copytree(twin, copy)
    (copy / "compile.record.textproto").write_text(changed)
    proved = tool("prove", source, copy, "--attainable", "--progress", "none", "--format", "json")
    if name in FALSE:
        assert proved.code == 4 and proved.json["error"]["code"] == code, proved
    else:
        assert proved.code == 1 and proved.json["attainable"]["code"] == code, proved


def test_the_ladder_has_the_rung_of_the_record_beside_it(tool, source, twin, report):
    words = ["score", twin, "--phase", "decode", "--chip", "v5e", "--ladder"]
    done = tool.json(*words, *STEP)
    assert done["compiled"]["cycles"] == report["twin"]["total"]["cycles"]
    other = tool.json(*words, "--batch", "4", "--context", "64")
    assert other["compiled"]["refused"]["code"] == "TF2109" and other["twin"]["ladder"]
    for types in (["--dtype", "int8"], ["--kv-dtype", "fp8"], ["--activation-dtype", "int8"]):
        said = tool.json(*words, *STEP, *types)["compiled"]
        assert said["refused"]["code"] == "TF2109" and "type" in said["refused"]["message"], said
    none = tool.json("score", source, *words[2:], *STEP)
    assert "no compile record" in none["compiled"]["refused"]["message"]
    assert tool(*words, *STEP, "--vary", "batch=8,16").codes == ["TF1003"]


def test_a_twin_is_compiled_as_it_is_split(tool, twin, report):
    refused = tool("compile", twin, "--topology", "v5e:2x2", *STEP, "--shards", 3)
    assert refused.code == 2 and refused.codes == ["TF1003"] and "forge" in refused.err, refused


def test_a_record_of_another_model_is_refused(tool, twin, report):
    done = tool("score", "--from-config", CONFIGS / "llama-3.1-8b" / "config.json", "--chip", "v5e", *STEP, "--compiled", twin / "compile.record.textproto")
    assert done.code == 2 and done.codes == ["TF2109"], done


def test_a_clock_that_nobody_published_makes_no_time(tool, source, tmp_path):
    record = tmp_path / "record"
    tool.json("compile", source, "--topology", "v6e:1x1", *STEP, "--out", record)
    compiled = tool.json("score", source, "--chip", "v6e", *STEP, "--compiled", record)["compiled"]
    assert compiled["clock"] is None and "seconds" not in compiled and compiled["cycles"] > 0


def test_layers_with_a_window_have_a_cache_of_the_programs_length(tool, tmp_path):
    """gpt-oss: every second layer sees 128 places, and each cache of the program has 256."""
    config = json.loads((CONFIGS / "gpt-oss-120b" / "config.json").read_text())
    config.update(num_local_experts=4, hidden_size=256, intermediate_size=256, vocab_size=512)
    config.pop("quantization_config", None)
    small = tmp_path / "config.json"
    small.write_text(json.dumps(config))
    report = tool.json("compile", "--from-config", small, "--recipe", "tpu-exact-native", "--topology", "v6e:1x1", "--batch", "2", "--context", "256")
    for side in ("twin", "source"):
        assert agrees(report[side]["predicted"]) and report[side]["predicted"]["cache"]["compiled"] > 0, report[side]["predicted"]


def test_full_width_layers_gain_and_agree(tool):
    report = tool.json("compile", "--from-config", CONFIGS / "llama-3.1-8b" / "config.json", "--recipe", "tpu-exact-native", "--topology", "v6e:1x1", "--batch", "8", "--context", "2048")
    assert report["twin"]["total"]["cycles"] < report["source"]["total"]["cycles"]
    assert all(row["memory"]["agrees"] for side in ("twin", "source") for row in report[side]["modules"])
    assert all(agrees(report[side]["predicted"]) for side in ("twin", "source"))


def test_heads_that_do_not_divide_are_the_news(tool):
    """28 heads on 8 devices: the twin has 32, and reduces once after attention and once after the feed-forward."""
    report = tool.json("compile", "--from-config", CONFIGS / "qwen2.5-7b" / "config.json", "--recipe", "tpu-exact-native", "--topology", "v6e:2x4", "--shards", "8", "--batch", "8", "--context", "2048")
    assert "28" in report["source"]["refused"]
    layer = next(row for row in report["twin"]["modules"] if row["kind"] == "layers.0")
    assert layer["partitions"] == 8
    assert [(row["kind"], row["count"], row["group"]) for row in layer["collectives"]] == [("all-reduce", 2, 8)]
    predicted = report["twin"]["predicted"]
    assert agrees(predicted)
    # Two a layer and the embedding's; the cost model gathers the logits as well, which the program leaves split.
    assert predicted["collectives"]["compiled"] == 2 * 28 + 1 and predicted["collectives"]["predicted"] == 2 * 28 + 2


def test_what_is_asked_wrongly(tool, source, tmp_path):
    program = tmp_path / "a.mlir"
    program.write_text("module {}")
    for words in ([], [source, "--program", program, "--topology", "v6e:2x2"], [source], [source, "--source-program", program, "--topology", "v6e:2x2"]):
        done = tool("compile", *words)
        assert done.code == 2 and done.codes == ["TF1003"], done
    for flag in (["--batch", "8"], ["--context", "64"], ["--phase", "decode"], ["--shards", "2"], ["--recipe", "tpu-exact-native"], ["--kernel", "paged"]):
        done = tool("compile", "--program", program, "--topology", "v6e:2x2", *flag)
        assert done.code == 2 and done.codes == ["TF1003"] and flag[0] in done.err, done


def test_places_that_a_learned_table_does_not_have(tool, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 97, "layer_norm_epsilon": 1e-5, "torch_dtype": "float32"}')
    words = ["compile", "--from-config", config, "--topology", "v6e:1x1", "--batch", 1, "--context"]
    done = tool(*words, 65)
    assert done.code == 2 and done.codes == ["TF1703"] and "--context: 65 places" in done.err and done.out == "", done
    assert tool(*words, 64).code == 0
