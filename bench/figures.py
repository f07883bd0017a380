#!/usr/bin/env python3
"""Prints the figures that the README quotes, each beside a peer measured in the same run. Standard library only.

  figures.py [--dir SCRATCH] [--gib 4] [version plan forge memory resume]
"""
import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOL = os.environ.get("TWINFORGE", str(ROOT / "build" / "release" / "cli" / "twinforge"))
MAKER = ROOT / "tests" / "support" / "big_checkpoint.py"
EXACT = 'name: "exact" step { pad_ffn { multiple: 256 } } step { pad_vocab { multiple: 1024 mask: SUPPRESS_TOKENS } }'


def timed(words):
    """Seconds and peak resident bytes of one process."""
    began = time.perf_counter()
    child = subprocess.Popen([str(w) for w in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{words} failed: {message.decode()}")
    return time.perf_counter() - began, usage.ru_maxrss * 1024


def make(*words):
    subprocess.run([sys.executable, str(MAKER), *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def row(what, figure, peer, ratio):
    print(f"| {what} | {figure} | {peer} | {ratio} |", flush=True)


def version(_):
    ours = [timed([TOOL, "--version"])[0] for _ in range(21)]
    peer = [timed([sys.executable, "--version"])[0] for _ in range(21)]
    row("`--version`", f"{1e3 * statistics.median(ours):.1f} ms", f"`python3 --version` {1e3 * statistics.median(peer):.1f} ms",
        f"{statistics.median(ours) / statistics.median(peer):.2f}")


def read_headers(folder):
    """The peer: every header parsed with Python's json, as loaders do."""
    for file in sorted(folder.glob("*.safetensors")):
        with open(file, "rb") as f:
            json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))


def plan(scratch):
    folder = scratch / "many"
    if not folder.exists():
        make(folder, "qwen3_moe", "--hidden", 64, "--layers", 260, "--experts", 128, "--ffn", 32, "--shards", 200, "--vocab", 1000, "--heads", 4,
             "--kv-heads", 2, "--head-dim", 16, "--sparse")
    ours, peers = [], []
    for _ in range(5):
        ours.append(timed([TOOL, "plan", folder, "--recipe", "tpu-exact-portable"])[0])
        began = time.perf_counter()
        read_headers(folder)
        peers.append(time.perf_counter() - began)
    ratio = statistics.median(a / b for a, b in zip(ours, peers))
    row("`plan`, 102,183 tensors in 200 shards", f"{statistics.median(ours):.2f} s", f"json.loads of the headers alone {statistics.median(peers):.2f} s", f"{ratio:.2f}")


def copy(source, target):
    """cp and fsync of every file: what a careful copy costs."""
    shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    subprocess.run(["cp", "-r", source, target], check=True)
    for file in target.iterdir():
        with open(file, "rb+") as f:
            os.fsync(f.fileno())
    return time.perf_counter() - began


def big(scratch, gib):
    folder = scratch / f"big{gib}"
    if not folder.exists():
        layers = max(1, round(gib * 2**30 / 2 / (4096 * (11008 * 3 + 4096 * 2 + 1024 * 2))))
        make(folder, "llama", "--hidden", 4096, "--layers", layers, "--heads", 32, "--kv-heads", 8, "--head-dim", 128, "--ffn", 11008,
             "--vocab", 32000, "--shards", 4)
    return folder


def forge(scratch, gib):
    source = big(scratch, gib)
    recipe = scratch / "exact.textproto"
    recipe.write_text(EXACT)
    ratios, ours = [], []
    for _ in range(3):
        peer = copy(source, scratch / "copy")
        shutil.rmtree(scratch / "copy")
        seconds, _ = timed([TOOL, "forge", source, "--recipe", recipe, "--out", scratch / "twin", "--progress", "none"])
        shutil.rmtree(scratch / "twin")
        ours.append(seconds)
        ratios.append(peer / seconds)
    size = sum(f.stat().st_size for f in source.iterdir()) / 2**30
    row(f"`forge`, exact recipe, {size:.1f} GiB bf16 in 4 shards", f"{size / statistics.median(ours):.2f} GiB/s", "`cp` + fsync, same disk",
        f"{statistics.median(ratios):.2f} x its speed")


def memory(scratch):
    recipe = scratch / "exact.textproto"
    recipe.write_text(EXACT)
    small = big(scratch, 1)
    huge = scratch / "huge"
    if not huge.exists():
        make(huge, "llama", "--hidden", 16384, "--layers", 46, "--heads", 128, "--kv-heads", 8, "--head-dim", 128, "--ffn", 53248, "--vocab", 128256,
             "--shards", 60, "--sparse")
    for name, folder in (("1 GiB", small), (f"{sum(f.stat().st_size for f in huge.iterdir()) / 1e9:.0f} GB sparse", huge)):
        for budget in ("256MiB", "2GiB"):
            limit = {"256MiB": 256 << 20, "2GiB": 2 << 30}[budget]
            _, peak = timed([TOOL, "forge", folder, "--recipe", recipe, "--out", "/dev/null", "--memory", budget, "--progress", "none"])
            row(f"peak memory, {name}, `--memory {budget}`", f"{peak / 2**20:.0f} MiB", "budget", f"{peak / limit:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("only", nargs="*", default=["version", "plan", "forge", "memory"])
    a = parser.parse_args()
    scratch = a.dir or Path(tempfile.mkdtemp(prefix="twinforge-bench-"))
    scratch.mkdir(parents=True, exist_ok=True)
    print("| what | figure | beside | ratio |\n| --- | --- | --- | --- |", flush=True)
    for name in a.only:
        {"version": version, "plan": plan, "forge": lambda s: forge(s, a.gib), "memory": memory}[name](scratch)
    if a.dir is None:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
