"""The contract of the command line: where things are printed, exit statuses, hints, documents that parse."""
import json
import re
import resource
import shutil
import struct

import pytest
from tool import ROOT

VERBS = ["inspect", "plan", "forge", "score", "check", "prove", "unforge", "eval", "recipe", "chip", "explain", "doctor"]


def codes_in_the_table():
    return re.findall(r"TWIN_CODE\((\d+)", (ROOT / "base" / "codes.def").read_text())


def test_version(tool):
    done = tool("--version")
    cmake = re.search(r"project\(twinforge VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert (done.code, done.out, done.err) == (0, f"twinforge {cmake}\n", "")


def test_help_names_every_verb_and_each_verb_has_examples(tool):
    text = tool("--help").out
    for verb in VERBS:
        assert verb in text
        assert tool(verb, "--help").out.count(f"twinforge {verb}") >= 2, verb


def test_help_examples_that_need_no_file_run(tool):
    for words in (["chip", "list"], ["chip", "show", "v6e"], ["chip", "lint"], ["recipe", "list"], ["recipe", "show", "tpu-exact-native"],
                  ["recipe", "schema"], ["explain", "TF1201"], ["explain"], ["doctor"], ["doctor", "--format", "json"]):
        assert tool(*words).code == 0, words


@pytest.mark.parametrize("words, code, hint", [
    (["inspekt"], "TF1001", "inspect"), (["forge", "--recipee", "x"], "TF1001", "--recipe"),
    (["plan", "x", "--recipe", "tpu-exact-portabel"], "TF1108", "tpu-exact-portable"),
    (["plan", "x", "--recipe", "tpu-exact-portable", "--memory", "2 giga"], "TF1002", "2GiB"),
    (["inspect"], "TF1003", "--from-config"), (["inspect", "x", "--from-config", "y"], "TF1003", "leave one"),
    (["chip", "show", "v6"], "TF1701", "v6e"), (["explain", "9999"], "TF1004", "TF1201"),
])
def test_near_misses_are_named(tool, tiny, words, code, hint):
    done = tool(*[tiny if word == "x" and words[0] != "forge" else word for word in words])
    assert done.code == (3 if code == "TF1701" else 2) and done.codes == [code], done
    assert hint in done.err, done
    assert done.out == "", done


@pytest.mark.parametrize("code", codes_in_the_table())
def test_every_code_has_its_page(tool, code):
    done = tool("explain", f"TF{code}")
    assert done.code == 0 and done.out.startswith(f"TF{code}: ") and len(done.out.splitlines()) >= 4, done


def test_every_code_is_provoked_by_a_test():
    """A code that no test names is a message that nobody has read."""
    tests = "\n".join(file.read_text(errors="replace") for file in (ROOT / "tests").rglob("*") if file.suffix in (".py", ".cc", ".txt", ".h"))
    missing = [code for code in codes_in_the_table() if code != "7000" and not re.search(rf"(TF|\b){code}\b", tests)]
    assert not missing, f"codes without a test: {missing}"


def test_json_always_parses(tool, tiny, configs, tmp_path):
    for words in (["inspect", tiny], ["plan", tiny, "--recipe", "tpu-exact-portable"], ["score", tiny, "--chip", "v6e"],
                  ["score", "--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", "v5e", "--recipe", "tpu-exact-native"],
                  ["forge", tiny, "--recipe", "tpu-exact-portable", "--out", tmp_path / "t", "--progress", "none"],
                  ["prove", tiny, tmp_path / "t"], ["chip", "list"], ["recipe", "list"], ["doctor"],
                  ["inspect", tmp_path / "nothing"], ["score", tiny, "--chip", "nochip"], ["plan", tiny, "--recipe", "nothing"]):
        done = tool(*words, "--format", "json")
        body = done.json
        assert body["schema"] == f"twinforge.{words[0]}.v1" and body["tool_version"], done
        assert ("error" in body) == (done.code not in (0, 1)), done


def test_no_escape_bytes_and_no_carriage_returns(tool, tiny, tmp_path):
    for words in (["--help"], ["inspect", tiny], ["inspekt"], ["forge", tiny, "--recipe", "tpu-exact-portable", "--out", tmp_path / "t"]):
        done = tool(*words)
        assert "\x1b" not in done.out + done.err and "\r" not in done.out + done.err, words


def test_fixed_interfaces(tool, tiny, configs):
    said = tool.json("inspect", tiny)
    assert said["family"] == "llama" and said["parameters"] == {**said["parameters"], "total": 44064, "active": 44064}
    said = tool.json("plan", tiny, "--recipe", "tpu-exact-portable", "--chip", "v6e", "--shards", 8)
    assert {"sites", "refused", "bytes_out", "peak_bytes"} <= said.keys()
    said = tool.json("plan", "--from-config", configs / "qwen2.5-7b" / "config.json", "--recipe", "tpu-exact-native", "--chip", "v6e", "--shards", 8)
    steps = {row["step"].split()[1]: row for row in said["steps"]}
    assert len(steps["pad_heads"]["sites"]) == 28 and len(steps["replicate_kv_heads"]["sites"]) == 28
    for name in ("llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-120b"):
        said = tool.json("score", "--from-config", configs / name / "config.json", "--chip", "v6e", "--phase", "decode", "--batch", 8, "--context", 2048,
                         "--recipe", "tpu-exact-native")
        seconds = [rung["seconds"] for rung in said["ladder"]]
        assert [rung["rung"] for rung in said["ladder"]][:4] == ["R0", "R1", "R2", "R3"] and seconds == sorted(seconds)
        # What does not fit on the chip has bounds and no estimate.
        assert said["feasible"] == (len(said["ladder"]) == 9) != ("shortfall" in said)
        assert all(rung["class"] == ("B" if rung["rung"] <= "R3" else "E") for rung in said["ladder"])
        assert [rung["rung"] for rung in said["twin"]["ladder"]][:4] == ["R0", "R1", "R2", "R3"]


def test_exit_statuses(tool, tiny, tmp_path):
    def edited(name, **keys):
        folder = tmp_path / name
        shutil.copytree(tiny, folder)
        config = json.loads((folder / "config.json").read_text())
        config.update(keys)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    assert tool("inspect", tmp_path / "absent").code == 2
    assert tool("inspect", edited("alien", model_type="zebra")).code == 3
    assert tool("inspect", edited("wide", hidden_size=64)).code == 4
    assert tool("inspect", edited("quantised", quantization_config={"quant_method": "fp8"})).code == 3
    cut = edited("cut")
    data = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(data[:-1])
    assert tool("inspect", cut).code == 4
    (cut / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + data[8:])
    assert tool("inspect", cut).code == 4
    existing = tmp_path / "there"
    existing.mkdir()
    (existing / "mine.txt").write_text("keep me")
    done = tool.forge(tiny, "tpu-exact-portable", existing)
    assert done.code == 2 and (existing / "mine.txt").read_text() == "keep me", done
    assert tool.forge(tiny, "tpu-exact-portable", tmp_path / "t", "--memory", "1MiB").code == 5
    assert not list(tmp_path.glob("t.*")) and not (tmp_path / "t").exists(), "a refused forge leaves nothing"
    assert tool("score", tiny, "--chip", "abacus").code == 3
    assert tool("score", tiny, "--chip", "v6e", "--shards", 3).code == 3


def test_a_native_twin_is_named_as_such(tool, tiny, tmp_path):
    assert tool.forge(tiny, "tpu-exact-native", tmp_path / "twin", "--to", "twin").code == 0
    for words in (["plan", "--recipe", "tpu-exact-portable"], ["forge", "--recipe", "tpu-exact-portable", "--out", tmp_path / "again"]):
        done = tool(words[0], tmp_path / "twin", *words[1:])
        assert done.code == 3 and done.codes == ["TF1804"] and "unforge" in done.err, done
    assert tool("score", tmp_path / "twin", "--chip", "v6e").code == 0
    said, source = tool.json("inspect", tmp_path / "twin"), tool.json("inspect", tiny)
    assert said["layout"] == "twin" and said["family"] == "llama" and said["dims"]["d_model"] == source["dims"]["d_model"]
    assert said["parameters"] == source["parameters"], "what a model's own elements are, padding left out"
    assert tool("inspect", tmp_path / "twin", "--integrity").code in (0, 1)


def test_links_out_of_the_folder_are_refused(tool, tiny, tmp_path):
    """Whatever would be read or carried along: a link may lead into the folder, not out of it."""
    secret = tmp_path / "secret"
    secret.write_text("{}")
    for name in ("tokenizer.json", "LICENSE", "config.json", "generation_config.json"):
        folder = tmp_path / name
        shutil.copytree(tiny, folder)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(secret)
        done = tool.forge(folder, "tpu-exact-portable", tmp_path / "out")
        assert done.code == 4 and done.codes == ["TF1308"] and not (tmp_path / "out").exists(), done


def test_more_shards_than_descriptors(tool, tmp_path):
    """Shards are opened as they are read: a checkpoint of 2,000 needs no more descriptors than one of two."""
    import subprocess
    subprocess.run(["python3", ROOT / "tests" / "support" / "big_checkpoint.py", tmp_path / "many", "llama", "--hidden", "64", "--ffn", "64", "--vocab", "128", "--layers", "222", "--shards", "2001", "--sparse"],
                   check=True, capture_output=True)
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))}
    recipe = tmp_path / "ffn.textproto"
    recipe.write_text("step { pad_ffn { multiple: 256 } }")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) == 2001
    for words in (["plan", tmp_path / "many", "--recipe", recipe], ["forge", tmp_path / "many", "--recipe", recipe, "--out", tmp_path / "twin"],
                  ["prove", tmp_path / "many", tmp_path / "twin"], ["unforge", tmp_path / "twin", "--out", tmp_path / "home"]):
        done = tool(*words, **few)
        assert done.code == 0, done


def test_no_descriptor_left(tool, tiny):
    done = tool("inspect", tiny, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)))
    assert done.code == 6 and done.codes == ["TF1208"] and "ulimit -n" in done.err, done


def test_a_flipped_byte_is_found(tool, tiny, tmp_path):
    twin = tmp_path / "twin"
    assert tool.forge(tiny, "tpu-exact-native", twin, "--to", "twin").code == 0
    assert tool("prove", tiny, twin).code == 0
    file = next(twin.glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    done = tool("prove", tiny, twin, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED", done


def test_integrity(tool, tiny, tmp_path):
    assert tool("inspect", tiny, "--integrity").code == 0
    bad = tmp_path / "bad"
    shutil.copytree(tiny, bad)
    data = bytearray((bad / "model.safetensors").read_bytes())
    data[-2:] = b"\xc0\x7f"                      # a bf16 NaN
    (bad / "model.safetensors").write_bytes(data)
    done = tool("inspect", bad, "--integrity", "--format", "json")
    assert done.code == 1 and any("NaN" in row["finding"] for row in done.json["integrity"]), done
