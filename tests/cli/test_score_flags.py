"""`score` takes no flag in silence: what does nothing is refused by name, what is read is read as people write it."""
import json

import adapters
import pytest


@pytest.fixture(scope="session")
def llama(configs):
    return ["--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", "v6e"]


PHASES = {"prefill", "decode", "train", "serve"}
TAKERS = {"--batch": {"prefill", "decode", "train"}, "--context": {"prefill", "decode", "train"}, "--past": {"prefill"}, "--rematerialise": {"train"},
          "--input-len": {"serve"}, "--output-len": {"serve"}, "--concurrency": {"serve"}, "--kv-dtype": {"prefill", "decode", "serve"},
          "--certificate": {"prefill", "decode"}}


@pytest.mark.parametrize("flag", sorted(TAKERS))
@pytest.mark.parametrize("phase", sorted(PHASES))
def test_a_phase_takes_its_own_flags(tool, llama, tmp_path, flag, phase):
    value = {"--rematerialise": [], "--kv-dtype": ["int8"], "--certificate": [tmp_path / "c.cert"]}.get(flag, [8])
    done = tool("score", *llama, "--chips", 8, "--phase", phase, flag, *value)
    if phase in TAKERS[flag]:
        assert done.code == 0, done
        return
    assert done.code == 2 and done.codes == ["TF1003"] and f"{flag}: does not go with --phase {phase}" in done.err, done
    assert all(taker in done.err for taker in TAKERS[flag]) and not (tmp_path / "c.cert").exists(), done


@pytest.mark.parametrize("words, flag, says", [
    (["--skip-step", "pad_ffn"], "--skip-step", "--recipe"), (["--kernel", "paged"], "--kernel", "--recipe"), (["--config", "c.json"], "--config", "--from-config"),
    (["--batch-file", "rows.csv", "--recipe", "tpu-exact-native"], "--recipe", "--batch-file"), (["--batch-file", "rows.csv", "--certificate", "c"], "--certificate", "--batch-file"),
    (["--batch-file", "rows.csv", "--against", "v5e"], "--against", "--batch-file"), (["--batch-file", "rows.csv", "model"], "MODEL", "--batch-file")])
def test_a_flag_that_does_nothing_is_refused(tool, llama, words, flag, says):
    done = tool("score", *llama, *words)
    assert done.code == 2 and done.codes == ["TF1003"] and f"{flag}: does n" in done.err and says in done.err, done


def test_rows_take_no_flag_in_silence_either(tool, llama, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("phase,past,input-len\nprefill,8,\ndecode,8,\nserve,,16\ndecode,,16\n")
    lines = [json.loads(line) for line in tool("score", *llama, "--batch-file", table).out.splitlines()]
    refused = [line.get("refused", {}).get("message", "") for line in lines]
    assert refused[0] == "" and refused[2] == "", lines
    assert refused[1].startswith(f"{table}:3:8: --past: does not go") and refused[3].startswith(f"{table}:5:9: --input-len: does not go"), refused
    # Flags beside a table are for the rows that take them, where rows have phases of their own.
    table.write_text("phase\nserve\ndecode\n")
    assert all("refused" not in json.loads(line) for line in tool("score", *llama, "--batch-file", table, "--input-len", 8, "--batch", 2).out.splitlines())
    table.write_text("batch\n8\n")
    assert "--input-len" in tool("score", *llama, "--batch-file", table, "--input-len", 8).out


@pytest.mark.parametrize("text, code", [("batch\n8\n0\n", 0), ("batch\n0\nx\n", 2), ("mesh\ntp=3\ntp=5\n", 3), ("mesh\ntp=3\ntp=x\n", 3)])
def test_a_table_of_refusals_alone_is_no_success(tool, llama, tmp_path, text, code):
    (tmp_path / "rows.csv").write_text(text)
    done = tool("score", *llama, "--batch-file", tmp_path / "rows.csv")
    assert done.code == code and len(done.out.splitlines()) == text.count("\n") - 1, done


@pytest.mark.parametrize("word, means", [("010", 10), ("0008", 8), ("8", 8), ("0x10", None), ("1e3", None), ("", None), ("+8", None), ("8_0", None)])
def test_whole_numbers_are_decimal(tool, llama, tmp_path, word, means):
    done = tool("score", *llama, "--batch", word, "--format", "json")
    (tmp_path / "rows.csv").write_text(f'batch\n"{word}"\n' if word else "batch,context\n0x,1\n")
    row = json.loads(tool("score", *llama, "--batch-file", tmp_path / "rows.csv").out)
    if means is None:
        assert done.code == 2 and json.loads(done.out)["error"]["code"] == "TF1001", done
        assert word == "+8" or row["refused"]["code"] == "TF1003", row
        return
    assert json.loads(done.out)["workload"]["batch"] == means == row["workload"]["batch"]
    assert tool("plan", *llama[:2], "--recipe", "tpu-exact-native", "--shards", "08").code == 0


def test_sequences_beyond_the_model_s_are_noted(tool, llama):
    within = tool.json("score", *llama, "--context", 131071)
    beyond = tool.json("score", *llama, "--context", 131072)
    assert within["notes"] == [] and len(beyond["notes"]) == 1 and "131073" in beyond["notes"][0] and "131072" in beyond["notes"][0], beyond["notes"]
    assert "note: sequences of 131073 places are longer than the model's max_position_embeddings, 131072" in tool("score", *llama, "--context", 131072).out
    served = tool.json("score", *llama, "--phase", "serve", "--input-len", 131072, "--output-len", 8, "--concurrency", 1, "--chips", 8)
    assert "131080" in served["notes"][0]


def test_tokens_per_second_are_estimated_and_the_bound_has_a_name(tool, llama):
    said = tool.json("score", *llama, "--batch", 16)
    assert said["tokens_per_second"] == pytest.approx(16 / said["seconds"]["mid"])
    assert said["tokens_per_second_bound"] == pytest.approx(16 / said["seconds"]["bound"]) and said["tokens_per_second_bound"] > said["tokens_per_second"]
    assert "tokens/s, at most" in tool("score", *llama, "--batch", 16).out


def test_kv_tokens_are_places_of_the_cache_whatever_the_context(tool, llama):
    """131,072 bytes a place: what is free holds as many, of long sequences or short ones."""
    for context in (1, 7, 1000, 4096):
        said = tool.json("score", *llama, "--context", context, "--kv-dtype", "bf16")
        free = said["memory"]["usable_bytes"] - said["memory"]["parameter_bytes"]
        assert said["kv_tokens"] == pytest.approx(free / 131072, rel=2e-2 if context < 8 else 1e-3), context


def test_estimates_say_their_routing(tool, configs, tmp_path):
    qwen = ["--from-config", configs / "qwen3-30b-a3b" / "config.json", "--chip", "v6e", "--chips", 8]
    for routing, estimated in (("same", "expected"), ("expected", "expected"), ("spread", "spread")):
        path = tmp_path / f"{routing}.cert"
        said = tool.json("score", *qwen, "--routing", routing, "--certificate", path)
        assert said["workload"]["estimate_routing"] == estimated and f"\nestimates routing {estimated}\n" in path.read_text()


@pytest.mark.parametrize("chip", ["v5e", "v6e", "tpu7x", "h100", "a100"])
def test_four_bit_floats_are_widened_where_no_unit_takes_them(tool, configs, tmp_path, chip):
    llama = ["--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", chip, "--batch", 4]
    said, wide = (tool.json("score", *llama, "--dtype", dtype) for dtype in ("nvfp4", "bf16"))
    assert said["memory"]["parameter_bytes"] < 0.6 * wide["memory"]["parameter_bytes"] and said["ladder"][1]["seconds"] >= wide["ladder"][1]["seconds"]
    path = tmp_path / "c.cert"
    assert tool("score", *llama, "--dtype", "nvfp4", "--certificate", path).code == 0 and tool("check", path).code == 0
    assert tool.json("score", *llama[:2], "--chip", "b200", "--dtype", "nvfp4")["ladder"][1]["seconds"] > 0


def test_the_portable_recipe_pads_no_device_s_part_for_nothing(tool, configs):
    def added(model, shards):
        said = tool.json("plan", "--from-config", configs / model / "config.json", "--recipe", "tpu-exact-portable", "--chip", "v6e", "--shards", shards)
        step = next(step for step in said["steps"] if step["step"].endswith(" pad_ffn"))
        assert step["refused"] == 0
        return step["elements_added"]
    assert added("qwen3-30b-a3b", 16) == 0, "48 of 768 channels a device gain nothing as 128"
    # The whole of 2,880 to 2,944, whatever a device's part is; to 5 x 128 where 5 devices share it.
    assert added("gpt-oss-120b", 1) == added("gpt-oss-120b", 16) == 36 * 128 * (3 * 2880 + 2) * 64
    assert added("gpt-oss-120b", 5) == 36 * 128 * (3 * 2880 + 2) * 320


@pytest.mark.parametrize("last, word", [(float("nan"), "NaN"), (float("inf"), "Inf"), (float("-inf"), "-Inf")])
def test_an_adapter_without_numbers_is_refused_at_its_tensor(tool, tiny, tmp_path, last, word):
    adapters.write(tmp_path / "a", last=last)
    recipe = tmp_path / "r.textproto"
    recipe.write_text(f'require: BOUNDED step {{ merge_lora {{ adapter: "{tmp_path}/a" }} }}')
    for words in (["plan"], ["forge", "--out", tmp_path / "out"]):
        done = tool(*words[:1], tiny, "--recipe", recipe, *words[1:])
        assert done.code == 4 and done.codes == ["TF1424"] and "lora_B" in done.err and f"element 319 is {word}" in done.err, done
    assert not (tmp_path / "out").exists()
