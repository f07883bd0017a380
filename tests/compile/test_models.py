"""`compile MODEL`: the parts of source and twin, the record beside the twin, and what prove and score make of it."""
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
    assert any("qkv" in name for name in kinds["weight"]) and len(kinds["cache"]) == 2, kinds


def test_memory_is_what_the_tile_rule_says(report):
    for side in ("twin", "source"):
        for row in report[side]["modules"]:
            assert row["memory"]["agrees"], row["memory"]


def agrees(predicted):
    """Weights and caches of a device within 5 % of what the cost model counts."""
    return all(abs(predicted[what]["off"]) <= 0.05 for what in ("weights", "cache"))


def test_memory_is_what_the_cost_model_counts(report):
    """The count pads each parameter by itself; tensors that a twin has fused are padded as one, which matters where they are tiny."""
    assert agrees(report["source"]["predicted"]), report["source"]["predicted"]
    fused = report["twin"]["predicted"]
    assert fused["weights"]["compiled"] < fused["weights"]["predicted"] and fused["cache"]["off"] == 0
    for side in ("twin", "source"):
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
    for damaged, reason in ((text.replace(first, "0" * 64), "another program"), (text.replace('kind: "head"', 'kind: "head" error: "no room"'), "refuses head: no room"),
                            (text.replace("batch: 8", "batch: 7"), "another program"), (None, "no compile record")):
        record.unlink() if damaged is None else record.write_text(damaged)
        done = tool.json("prove", source, copy, "--attainable", "--progress", "none", code=1)
        assert not done["attainable"]["attainable"] and reason in done["attainable"]["reason"], done["attainable"]
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


def test_places_that_a_learned_table_does_not_have(tool, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 97, "layer_norm_epsilon": 1e-5, "torch_dtype": "float32"}')
    words = ["compile", "--from-config", config, "--topology", "v6e:1x1", "--batch", 1, "--context"]
    done = tool(*words, 65)
    assert done.code == 2 and done.codes == ["TF1703"] and "--context: 65 places" in done.err and done.out == "", done
    assert tool(*words, 64).code == 0
