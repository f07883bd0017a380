"""Peak memory of a forge against its budget and against what the plan predicted.

The system's own count (VmHWM) is read while the process runs. Output goes to the sink, so the size of the
checkpoint costs time and no disk; of the 300 GB one the beginning is streamed for a while, until many times the budget
went through, and then ended: memory is in its steady state from the first tiles on.
"""
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from tool import BINARY, ROOT, Tool  # noqa: E402

MAKER = ROOT / "tests" / "support" / "big_checkpoint.py"
SECONDS = 15
RECIPES = {
    "copies": 'name: "r" step { pad_vocab { multiple: 1000 mask: SUPPRESS_TOKENS } }',
    "transposes": 'name: "r" step { orient_weights { in_out: "o|gate|up|down|lm_head" out_in: "q|k|v" } }',
}
MODELS = {
    "1 GiB": ["llama", "--hidden", 2048, "--layers", 8, "--heads", 16, "--kv-heads", 8, "--head-dim", 128, "--ffn", 8192, "--vocab", 32001],
    "300 GB": ["llama", "--hidden", 16384, "--layers", 46, "--heads", 128, "--kv-heads", 8, "--head-dim", 128, "--ffn", 53248,
               "--vocab", 128257, "--shards", 60],
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "m"
    subprocess.run([sys.executable, MAKER, folder, *map(str, MODELS[request.param]), "--sparse"], check=True, stdout=subprocess.DEVNULL)
    size = sum(f.stat().st_size for f in folder.iterdir())
    assert size > (300e9 if request.param == "300 GB" else 0.9 * 2**30), size
    return folder


def status(pid, key, file="status"):
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


def run_for_a_while(words):
    """Peak bytes resident, bytes read, and whether it ended by itself."""
    child = subprocess.Popen([str(w) for w in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    began = time.monotonic()
    peak = read = 0
    while child.poll() is None and time.monotonic() - began < SECONDS:
        try:
            peak = max(peak, status(child.pid, "VmHWM") * 1024)
            read = max(read, status(child.pid, "rchar", "io"))
        except (FileNotFoundError, ProcessLookupError):
            break
        time.sleep(0.02)
    ended = child.poll() is not None
    if not ended:
        child.kill()
    message = child.stderr.read()
    assert child.wait() == 0 or not ended, message
    return peak, read, ended


@pytest.mark.parametrize("budget", [256 << 20, 2 << 30])
@pytest.mark.parametrize("recipe", list(RECIPES))
def test_peak_stays_within_the_budget(model, recipe, budget, tmp_path):
    path = tmp_path / "recipe.textproto"
    path.write_text(RECIPES[recipe])
    words = [model, "--recipe", path, "--to", "hf" if recipe == "copies" else "twin", "--memory", f"{budget >> 20}MiB", "--threads", 2]
    planned = Tool().json("plan", *words)
    assert planned["peak_bytes"] <= budget
    peak, read, ended = run_for_a_while([BINARY, "forge", *words, "--out", "/dev/null", "--progress", "none"])
    assert ended or read > budget, (read, ended)
    assert peak <= planned["peak_bytes"], "the plan's prediction is an upper bound"
    assert peak <= 1.05 * budget
    print(f"{recipe}: peak {peak / 2**20:.0f} MiB, predicted {planned['peak_bytes'] / 2**20:.0f}, budget {budget >> 20}, read {read / 1e9:.1f} GB")


def test_a_budget_that_is_too_small_names_the_least(tmp_path):
    """TF1604, and what its hint says works."""
    path = tmp_path / "recipe.textproto"
    path.write_text(RECIPES["copies"])
    tool = Tool()
    words = ["plan", ROOT / "samples" / "tiny-llama", "--recipe", path, "--threads", 1, "--memory"]
    refused = tool(*words, "1MiB")
    assert refused.code == 5 and refused.codes == ["TF1604"], refused
    least = refused.err.split("--memory ")[1].split()[0]
    assert tool(*words, least).code == 0


def test_an_onnx_model_is_streamed_too(tmp_path):
    """Its weights are no part of the message."""
    subprocess.run([sys.executable, MAKER, tmp_path / "m", *map(str, MODELS["1 GiB"]), "--sparse"], check=True, stdout=subprocess.DEVNULL)
    words = [tmp_path / "m", "--recipe", "tpu-exact-native", "--to", "onnx", "--memory", "256MiB", "--threads", 2]
    planned = Tool().json("plan", *words)
    peak, read, ended = run_for_a_while([BINARY, "forge", *words, "--out", "/dev/null", "--progress", "none"])
    assert ended or read > 256 << 20, (read, ended)
    assert peak <= planned["peak_bytes"] <= 256 << 20
