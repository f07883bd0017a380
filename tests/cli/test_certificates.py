"""Certificates of scores as the command line writes, checks, refuses and explains them."""
import re

import pytest
from recompute_certificate import recompute
from tool import ROOT

STEP = ["--phase", "decode", "--batch", "16", "--context", "2048"]


@pytest.fixture(scope="module")
def llama(tool, configs, tmp_path_factory):
    """Llama 3.1 8B on v6e."""
    path = tmp_path_factory.mktemp("certificates") / "llama.cert"
    done = tool("score", "--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", "v6e", *STEP, "--certificate", path)
    assert done.code == 0 and str(path) in done.out, done
    return path


def test_the_document_has_the_lines_that_are_written(llama):
    text = (ROOT / "docs" / "certificates.md").read_text()
    block = re.search(r"```\n(twinforge certificate 1\n.*?)```", text, re.S).group(1)
    written = iter(llama.read_text().splitlines())
    last_skipped = False
    for line in block.splitlines():
        if line == "...":
            last_skipped = True
            continue
        if last_skipped:
            assert line in written, line    # goes on to where it stands
        else:
            assert next(written) == line
        last_skipped = False


def test_it_is_accepted_by_both_checkers(tool, llama, configs):
    config, chip = configs / "llama-3.1-8b" / "config.json", ROOT / "cost" / "chips" / "v6e.textproto"
    body = tool.json("check", llama, "--model", config, "--twin", config, "--chip-file", chip)
    assert body["accepted"] and body["compared"] == ["chip", "model", "twin"] and body["findings"] == [], body
    ladder, parameters, cache = recompute(llama.read_text())
    assert body["rungs"][3] == f"R3 memory 0.{ladder[3]:021d} s"
    score = tool.json("score", "--from-config", config, "--chip", "v6e", *STEP)
    for rung, zepto in zip(score["ladder"], ladder):
        assert abs(zepto / 1e21 - rung["seconds"]) <= 2.0**-40 * score["ladder"][3]["seconds"]
    assert (parameters, cache) == (score["memory"]["parameter_bytes"], score["memory"]["cache_bytes"])


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen2.5-7b", "qwen3-30b-a3b", "gpt-oss-120b"])
@pytest.mark.parametrize("chip", ["v5e", "v6e", "tpu7x", "h100", "b200", "mi300x"])
def test_three_programs_agree(tool, configs, tmp_path, model, chip):
    for phase in ("prefill", "decode"):
        path = tmp_path / f"{phase}.cert"
        done = tool("score", "--from-config", configs / model / "config.json", "--chip", chip, "--phase", phase, "--batch", 8, "--context", 3000,
                    "--shards", 4, "--routing", "spread", "--certificate", path)
        assert done.code == 0, done
        assert tool("check", path).code == 0
        recompute(path.read_text())


@pytest.mark.parametrize("words", [
    ["--mesh", "tp=1,dp=8,ep=8", "--routing", "expected"], ["--mesh", "tp=2,dp=4,ep=8", "--dtype", "fp8_block"],
    ["--chips", "4", "--dtype", "int8", "--kv-dtype", "fp8"], ["--chips", "8", "--phase", "prefill", "--past", "500"]])
@pytest.mark.parametrize("chip", ["tpu7x", "h200_sxm"])
def test_meshes_and_types_of_serving_are_certified(tool, configs, tmp_path, words, chip):
    path = tmp_path / "c.cert"
    done = tool("score", "--from-config", configs / "qwen3-30b-a3b" / "config.json", "--chip", chip, "--batch", 16, *words, "--certificate", path)
    assert done.code == 0, done
    assert tool("check", path).code == 0
    recompute(path.read_text())
    text = path.read_text()
    for word in ("dp", "ep"):
        assert (f"workload {word} " in text) == (f"{word}=" in " ".join(words))
    assert ("workload weights " in text) == ("--dtype" in words) and ("workload past 500" in text) == ("--past" in words)
    assert ("workload routing expected" in text) == ("expected" in words)


def test_estimates_are_carried(llama, tool, tmp_path, configs):
    text = llama.read_text()
    ends = [re.search(rf"^rung R{rung} \w+ class E low (\S+) mid (\S+) high (\S+)$", text, re.M).groups() for rung in range(4, 9)]
    assert all(low <= mid <= high for low, mid, high in ends) and ends == sorted(ends)
    score = tool.json("score", "--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", "v6e", *STEP)
    for rung, (_, mid, _) in zip(score["ladder"][4:], ends):
        assert abs(float(mid) - rung["seconds"]) < 1e-13
    large = tmp_path / "large.cert"     # fits no single chip: bounds alone
    assert tool("score", "--from-config", configs / "gpt-oss-120b" / "config.json", "--chip", "v6e", "--certificate", large).code == 0
    assert "feasible no" in large.read_text() and "class E" not in large.read_text() and tool("check", large).code == 0


def test_hours_of_a_step_are_certified(tool, configs, tmp_path):
    path = tmp_path / "long.cert"
    done = tool("score", "--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", "v5e", "--phase", "prefill", "--batch", 1000,
                "--context", 500000, "--certificate", path)
    assert done.code == 0 and tool("check", path).code == 0, done
    assert int(re.search(r"rung R3 memory class B seconds (\d+)", path.read_text()).group(1)) > 9000
    recompute(path.read_text())


@pytest.mark.parametrize("words", [["--phase", "serve"], ["--batch-file", "rows.csv"]])
def test_only_a_step_is_certified(tool, configs, tmp_path, words):
    done = tool("score", "--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", "v6e", *words, "--certificate", tmp_path / "c")
    assert done.code == 2 and done.codes == ["TF1003"] and "--certificate" in done.err, done


def test_a_twin_is_certified_whether_planned_or_opened(tool, tiny, tmp_path):
    assert tool.forge(tiny, "tpu-exact-native", tmp_path / "twin", "--chip", "v6e").code == 0
    planned, opened = tmp_path / "planned.cert", tmp_path / "opened.cert"
    assert tool.json("score", tiny, "--recipe", "tpu-exact-native", "--chip", "v6e", "--certificate", planned)["certificate"]["of"] == "twin"
    assert tool("score", tmp_path / "twin", "--chip", "v6e", "--certificate", opened).code == 0
    assert planned.read_bytes() == opened.read_bytes()
    assert tool("check", planned, "--model", tiny, "--twin", tmp_path / "twin").code == 0
    other = tool("check", planned, "--twin", tiny)
    assert other.code == 1 and "TF1812" in other.out and "made from another twin" in other.out, other


def test_a_changed_line_is_named(tool, llama, tmp_path):
    changed = tmp_path / "changed.cert"
    changed.write_text(llama.read_text().replace("tile 939524096", "tile 939524097", 1))
    done = tool("check", changed)
    line = next(i for i, text in enumerate(changed.read_text().splitlines(), 1) if "939524097" in text)
    assert done.code == 1 and f"TF1811 {changed}:{line}: tile is 939524097, and 939524096 follows" in done.out, done
    assert done.out.index("TF1811") < done.out.index("TF1812"), "arithmetic first, then the seal"
    body = tool.json("check", changed, code=1)
    assert not body["accepted"] and body["findings"][0]["code"] == "TF1811", body


def test_what_is_no_certificate_has_a_place(tool, llama, tmp_path):
    bad = tmp_path / "bad.cert"
    bad.write_text(llama.read_text().replace("workload batch 16", "workload batch sixteen"))
    done = tool("check", bad)
    assert done.code == 2 and done.codes == ["TF1810"] and f"{bad}:8:16" in done.err, done
    bad.write_bytes(b"\xff\x00\x1b[31m")
    assert tool("check", bad).codes == ["TF1810"]
    assert tool("check", tmp_path / "nothing").code == 2


def test_a_measurement_is_attached(tool, llama, tmp_path):
    out = tmp_path / "measured.cert"
    done = tool("check", llama, "--measured", "0.0129", "--measured-source", "run 7", "--out", out)
    assert done.code == 0, done
    assert 'measured 0.012900000000000000000 source "run 7"\n' in out.read_text() and tool("check", out).code == 0
    assert recompute(out.read_text()) == recompute(llama.read_text())
    below = tool("check", llama, "--measured", "0.011", "--measured-source", "run 8", "--out", tmp_path / "no.cert")
    assert below.code == 1 and "TF1813" in below.out and not (tmp_path / "no.cert").exists(), below
    assert "0.011000000000000000000 s (run 8) is below R3 memory, 0.011705022671550671516 s" in below.out, below


@pytest.mark.parametrize("words, code", [
    (["--measured", "fast", "--measured-source", "x"], "TF1814"), (["--measured", "0.1"], "TF1003"), (["--measured-source", "x"], "TF1003"),
    (["--out", "x"], "TF1003")])
def test_usage(tool, llama, words, code):
    done = tool("check", llama, *words)
    assert done.code == 2 and done.codes == [code], done


def test_nothing_is_replaced(tool, llama, tiny, tmp_path):
    before = llama.read_bytes()
    done = tool("score", tiny, "--chip", "v6e", "--certificate", llama)
    assert done.code == 2 and done.codes == ["TF1608"] and llama.read_bytes() == before, done
    done = tool("score", tiny, "--chip", "v6e", "--certificate", tmp_path / "no" / "where")
    assert done.code == 2 and done.codes == ["TF1607"], done


def test_what_a_killed_run_left_is_no_part_of_the_next_file(tool, configs, tmp_path):
    words = ["score", "--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", "v6e", "--certificate"]
    assert tool(*words, tmp_path / "a.cert").code == 0
    (tmp_path / "b.cert.partial").write_text("x" * 1000000)
    assert tool(*words, tmp_path / "b.cert").code == 0
    assert (tmp_path / "b.cert").read_text() == (tmp_path / "a.cert").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cert", "b.cert"]
    done = tool(*words, tmp_path / "no" / "c.cert")
    assert done.code == 2 and done.codes == ["TF1607"] and not (tmp_path / "no").exists(), done
