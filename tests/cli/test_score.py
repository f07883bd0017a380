"""`score`: the ladder and the interval of a step, an engine in steady state, tables of both."""
import json

import pytest

STEP = ["--chip", "h200_sxm", "--chips", 8, "--mesh", "tp=8", "--phase", "decode", "--batch", 32, "--context", 4096, "--dtype", "fp8", "--kv-dtype", "bf16"]
SERVE = ["--chip", "h200_sxm", "--phase", "serve", "--input-len", 1024, "--output-len", 1024, "--concurrency", 64, "--stack", "vllm"]


@pytest.fixture(scope="session")
def llama(configs):
    return ["--from-config", configs / "llama-3.1-8b" / "config.json"]


@pytest.fixture
def batch(tool, llama, tmp_path):
    """Lines of a table's answer, one object each."""
    def run(text, *words, code=0):
        (tmp_path / "t.csv").write_text(text)
        done = tool("score", *llama, "--batch-file", tmp_path / "t.csv", *words)
        assert done.code == code, done
        return [json.loads(line) for line in done.out.splitlines()] if code in (0, 3) else done
    return run


def test_a_step_s_contract(tool, llama):
    said = tool.json("score", *llama, *STEP)
    seconds = said["seconds"]
    assert set(seconds) == {"bound", "low", "mid", "high"}
    assert 0 < seconds["bound"] <= seconds["low"] <= seconds["mid"] <= seconds["high"]
    assert said["feasible"] is True and said["kv_tokens"] > 32 * 4096
    assert [rung["rung"] for rung in said["ladder"]] == [f"R{i}" for i in range(9)]
    assert "".join(rung["class"] for rung in said["ladder"]) == "BBBBEEEEE"
    times = [rung["seconds"] for rung in said["ladder"]]
    assert times == sorted(times) and times[3] == seconds["bound"] and times[8] == seconds["mid"]
    assert said["chip"] == "h200_sxm"
    assert said["workload"] == {"phase": "decode", "routing": "same", "estimate_routing": "expected", "dtype": "fp8", "mesh": "tp=8", "shards": 8, "kv_dtype": "bf16", "batch": 32, "context": 4096}
    # What each op adds to each rung is all that the rung adds.
    for rung in range(9):
        assert sum(op["added_seconds"][rung] for op in said["ops"]) == times[rung] - (times[rung - 1] if rung else 0)


def test_serving_s_contract(tool, llama):
    said = tool.json("score", *llama, *SERVE)
    for name in ("tpot", "ttft"):
        assert 0 < said[name]["low"] <= said[name]["mid"] <= said[name]["high"]
    assert said["tpot"]["bound"] <= said["tpot"]["low"]
    assert 0 < said["running"] <= 64 and said["feasible"] is True
    assert said["workload"]["concurrency"] == 64 and said["workload"]["stack"] == "vllm"


def test_people_read_the_same(tool, llama):
    out = tool("score", *llama, *STEP, "--stack", "trtllm").out
    assert "h200_sxm x 8 (tp=8), decode, batch 32, context 4096" in out and "what to measure first" in out and "four in five between" in out
    assert "fitted on" in tool("score", *llama, *SERVE).out


def test_the_same_question_has_the_same_answer(tool, llama):
    for words in (STEP, SERVE):
        assert len({tool("score", *llama, *words, "--format", "json").out for _ in range(3)}) == 1


def test_a_table_is_answered_line_by_line(batch, tool, llama, configs):
    said = batch("chip,batch,context,kv-dtype,mesh,phase,input_len,output-len,concurrency\n"
                 "v6e,8,2048,,,,,,\n"
                 "nochip,8,2048,,,,,,\n"
                 'h200_sxm,,,fp8,"tp=2,dp=2",serve,100,200,4\n'
                 "v6e,8,2048,,tp=3,,,,\n")
    assert [line["row"] for line in said] == [1, 2, 3, 4]
    alone = tool.json("score", *llama, "--chip", "v6e", "--batch", 8, "--context", 2048)
    assert said[0]["seconds"] == alone["seconds"] and said[0]["ladder"] == alone["ladder"] and said[0]["workload"] == alone["workload"]
    assert said[1]["refused"]["code"] == "TF1701" and "nochip" in said[1]["refused"]["message"]
    assert said[2]["tpot"]["mid"] > 0 and said[2]["workload"]["mesh"] == "tp=2,dp=2" and said[2]["workload"]["kv_dtype"] == "fp8"
    assert said[3]["refused"]["code"] == "TF1702" and "3 shards" in said[3]["refused"]["message"]


def test_a_table_s_cells_come_before_flags(batch):
    said = batch("batch\n8\n\n4\n", "--chip", "v5e", "--context", 100, "--dtype", "int8")
    assert [line["workload"]["batch"] for line in said] == [8, 4]
    assert all(line["workload"]["context"] == 100 and line["chip"] == "v5e" and line["workload"]["dtype"] == "int8" for line in said)


def test_tables_name_their_models(batch, configs, tmp_path):
    said = batch(f"from_config,chip\n{configs / 'qwen2.5-7b' / 'config.json'},v6e\n{tmp_path / 'none.json'},v6e\n,v6e\n")
    assert said[0]["seconds"]["mid"] > 0 and said[1]["refused"]["code"] == "TF1202" and said[2]["seconds"]["mid"] > 0
    assert said[0]["seconds"] != said[2]["seconds"]


@pytest.mark.parametrize("column, cell, code", [
    ("batch", "many", "TF1003"), ("batch", "-1", "TF1003"), ("batch", "1.5", "TF1003"), ("batch", "99999999999999999999", "TF1003"), ("batch", "0", "TF1003"), ("past", "x", "TF1003"),
    ("phase", "dream", "TF1003"), ("routing", "round-robin", "TF1003"), ("mesh", "xp=2", "TF1720"), ("dtype", "fp7", "TF1704"), ("kv_dtype", "fp7", "TF1704"),
    ("activation_dtype", "fp7", "TF1704"), ("stack", "tgi", "TF1711"), ("chips", "3", "TF1702"), ("chip", "", None),
    ("from_config", "no.json", "TF1202"),
])
def test_a_bad_cell_is_refused_within_its_line(batch, column, cell, code):
    lines = batch(f"context,{column}\n512,{cell}\n512,\n", "--chip", "v6e")
    assert len(lines) == 2, lines
    if code is None:
        assert "seconds" in lines[0]
        return
    assert lines[0]["refused"]["code"] == code, lines[0]
    assert "seconds" in lines[1], lines[1]  # the next row is none the worse
    if code == "TF1003":
        assert f"t.csv:2:5: --{column}: " in lines[0]["refused"]["message"], lines[0]


@pytest.mark.parametrize("column, near", [("speed", "--activation-dtype"), ("bach", "batch"), ("recipe", "columns are named like"), ("kv dtype", "kv-dtype")])
def test_a_column_that_is_no_flag_refuses_the_table(batch, column, near):
    done = batch(f"context,{column}\n512,1\n", "--chip", "v6e", code=2)
    assert done.codes == ["TF1003"] and "t.csv:1:9: " in done.err and column in done.err and near in done.err and done.out == "", done


def test_a_row_that_does_not_fit_has_bounds_alone(batch):
    many, few = batch("batch\n100000\n1\n", "--chip", "v6e")
    assert many["feasible"] is False and "a batch of " in many["shortfall"] and len(many["ladder"]) == 4, many
    assert few["feasible"] is True and len(few["ladder"]) == 9


@pytest.mark.parametrize("column", ["output_len", "input-len", "concurrency"])
def test_serving_nobody_is_refused_within_its_line(batch, column):
    done = batch(f"{column},phase\n0,serve\n", "--chip", "v6e", code=2)
    line = json.loads(done.out)
    assert line["refused"]["code"] == "TF1003" and f"t.csv:2:1: --{column.replace('_', '-')}: " in line["refused"]["message"], line


@pytest.mark.parametrize("text, place, says", [
    ('a,"b\n1,2\n', "t.csv:1:3", "never closed"), ("batch,batch\n1,2\n", "t.csv:1:7", "named twice"), ("batch,context\n1\n", "t.csv:2:1", "1 cells in a table of 2"),
    ("batch\n1,2\n", "t.csv:2:3", "2 cells in a table of 1"), ("", "t.csv:1:1", "no name"), ("batch,\n1,2\n", "t.csv:1:7", "no name"),
    ('batch\n1"2\n', "t.csv:2:2", "a quote inside"), ("batch\n", "t.csv:2:1", "no rows"), ("batch", "t.csv:2:1", "no rows"), ("batch\n\n\n", "t.csv:2:1", "no rows"),
])
def test_a_malformed_table_is_refused_whole(batch, text, place, says):
    done = batch(text, "--chip", "v6e", code=2)
    assert done.codes == ["TF1006"] and place in done.err and says in done.err and done.out == "", done


def test_a_table_that_is_no_file(tool, llama, tmp_path):
    done = tool("score", *llama, "--chip", "v6e", "--batch-file", tmp_path)
    assert done.code == 2 and done.codes == ["TF1006"] and f"{tmp_path}:1:1" in done.err, done


def test_a_table_that_is_not_there(tool, llama, tmp_path):
    done = tool("score", *llama, "--chip", "v6e", "--batch-file", tmp_path / "none.csv")
    assert done.code == 2 and done.codes == ["TF1202"], done


@pytest.mark.parametrize("words, status, code, says", [
    (["--chip", "v6f"], 3, "TF1701", "v6e"), (["--chip", "v6e", "--dtype", "fp7"], 3, "TF1704", "fp8"), (["--chip", "v6e", "--mesh", "xp=2"], 2, "TF1720", "tp=8,ep=8"),
    (["--chip", "v6e", "--mesh", "tp=2", "--chips", 3], 3, "TF1702", "tp x dp x sp x pp"), (["--chip", "v6e", "--mesh", "tp=4", "--shards", 2], 3, "TF1702", "tp=4"),
    (["--chip", "v6e", "--mesh", "pp=999"], 3, "TF1702", "999 stages"), (["--chip", "v6e", "--mesh", "ep=2,tp=2,dp=1@dcn"], 2, "TF1720", "crosses nothing"),
    (["--chip", "v6e", "--phase", "mixed"], 2, "TF1703", "--chunk 512"), (["--chip", "v6e", "--chunk", 8], 2, "TF1003", "--phase mixed"),
    (["--chip", "v6e", "--mesh", "dp=8@dcn", "--batch", 8, "--phase", "train"], 3, "TF1706", "network between hosts"), (["--chip", "v6e", "--stack", "tgi"], 3, "TF1711", "vllm"),
    (["--chip", "gh200", "--chips", 2], 3, "TF1706", "chip"), (["--chip", "v6e", "--mesh", "tp=5"], 3, "TF1702", "5 shards"),
    (["--chip", "v6e", "--phase", "dream"], 2, "TF1001", "prefill"), (["--chip", "b300_sxm", "--dtype", "int8"], 3, "TF1704", "bf16"),
])
def test_refusals_name_the_nearest_that_is_known(tool, llama, words, status, code, says):
    done = tool("score", *llama, *words)
    assert done.code == status and done.codes == [code] and says in done.err, done


def test_what_does_not_fit_names_what_does(tool, llama):
    def of(count):
        return tool.json("score", *llama, "--chip", "v6e", "--batch", count, "--context", 4096)
    said = of(100)
    assert said["feasible"] is False and "shards would do" in said["shortfall"] and len(said["ladder"]) == 4
    fits = int(said["shortfall"].split("a batch of ")[1].split()[0])
    assert of(fits)["feasible"] is True and of(fits + 1)["feasible"] is False
    served = tool("score", *llama, "--chip", "v5e", "--phase", "serve", "--stack", "vllm")
    assert served.codes == ["TF1712"] and "2 shards would do" in served.err, served


@pytest.mark.parametrize("words, says", [
    (["--phase", "mixed", "--batch", 16, "--context", 2048, "--chunk", 512, "--past", 1024], {"phase": "mixed", "chunk": 512}),
    (["--mesh", "tp=2,pp=4", "--batch", 16, "--microbatches", 4], {"mesh": "tp=2,pp=4", "microbatches": 4}),
    (["--mesh", "sp=4", "--phase", "prefill", "--context", 8192], {"mesh": "sp=4"}),
    (["--mesh", "tp=2,pp=2@dcn", "--chips", 4], {"mesh": "tp=2,pp=2@dcn"}),
])
def test_steps_of_every_shape(tool, llama, words, says):
    words = ["--chip", "v5p", *words]
    said = tool.json("score", *llama, *words)
    times = [rung["seconds"] for rung in said["ladder"]]
    assert times == sorted(times) and times[3] == said["seconds"]["bound"] and times[8] == said["seconds"]["mid"]
    for rung in range(9):
        assert sum(op["added_seconds"][rung] for op in said["ops"]) == times[rung] - (times[rung - 1] if rung else 0)
    assert says.items() <= said["workload"].items()
    assert all(str(value) in tool("score", *llama, *words).out for value in says.values())


def test_what_a_certificate_cannot_carry(tool, llama, tmp_path):
    for words, code in (["--phase", "mixed", "--chunk", 64], "TF1003"), (["--mesh", "pp=2"], "TF1703"), (["--mesh", "sp=2"], "TF1703"):
        done = tool("score", *llama, "--chip", "v6e", *words, "--certificate", tmp_path / "c.cert")
        assert done.code == 2 and done.codes == [code] and "certificate" in done.err, done
        assert not (tmp_path / "c.cert").exists()


def test_rows_of_a_table_may_be_mixed_and_staged(batch):
    mixed, staged, wrong = batch("phase,chunk,mesh,microbatches,batch\nmixed,64,,1,8\ndecode,,pp=2,2,8\ndecode,,pp=2,3,8\n", "--chip", "v5p")
    assert mixed["workload"]["chunk"] == 64 and staged["workload"]["microbatches"] == 2
    assert wrong["refused"]["code"] == "TF1703" and "a batch of 9" in wrong["refused"]["hint"]
