"""Runs the standard's tests by tests/onnx/onnx_conformance, and says them as a table per operator.

    python tests/onnx/suite.py write      writes the table of docs/onnx.md anew
"""
import csv
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from tool import BINARY, ROOT, SHARED  # noqa: E402

RUNNER = os.environ.get("ONNX_CONFORMANCE", str(Path(BINARY).parents[1] / "tests" / "onnx" / "onnx_conformance"))
FACTS = str(Path(RUNNER).with_name("onnx_facts"))
DATA = SHARED / "data"
PAGE = ROOT / "docs" / "onnx.md"
BEGIN, END = "<!-- tests/onnx/suite.py writes from here -->", "<!-- to here -->"


def expected_refusals():
    """Test -> (verdict, reason) of every test of the archive that does not pass as it is."""
    with open(ROOT / "tests" / "onnx" / "refusals.csv", newline="") as file:
        return {row["test"]: (row["verdict"], row["reason"]) for row in csv.DictReader(file)}


def run(folder):
    """Test -> (operators, verdict, why). Every test below the folder has a row, whatever becomes of it."""
    done = subprocess.run([RUNNER, str(folder)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.returncode, done.stderr[-300:])
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: (operators, verdict, why) for name, operators, verdict, why in rows}


def run_facts(folder):
    """Test -> (verdict, [tensors, known types, ranks, full shapes, these with small inputs as constants], why): what is inferred, held against a run."""
    done = subprocess.run([FACTS, str(folder)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.returncode, done.stderr[-300:])
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: (verdict, [int(n) for n in counts.split()], why) for name, verdict, counts, why in rows}


def over_archive(runner):
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(DATA / "onnx_backend_tests.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        return runner(Path(folder) / "onnx_backend_tests")


def run_archive():
    return over_archive(run)


def operator_of():
    """Test -> the operator that it is of: the manifest's, or of suites that name none the suite."""
    with open(DATA / "onnx_backend_tests_manifest.csv", newline="") as file:
        return {f"{row['suite']}/{row['test']}": row["op_under_test"] or f"({row['suite']})" for row in csv.DictReader(file)}


def share(known, tensors):
    """In per cent, rounded down: 100 says all."""
    return f"{100 * known // tensors} %" if tensors else ""


def table(results, facts):
    counts, reasons = defaultdict(Counter), defaultdict(set)
    of, expected = operator_of(), expected_refusals()
    for name, (_, verdict, _) in results.items():
        counts[of[name]]["tests"] += 1
        counts[of[name]][verdict] += 1
        if verdict != "pass":
            reasons[of[name]].add(expected.get(name, ("", "unexpected"))[1])
        for what, number in zip(("tensors", "type", "rank", "shape", "given"), facts[name][1], strict=True):
            counts[of[name]][what] += number
            counts["all"][what] += number
    total = Counter(verdict for _, verdict, _ in results.values())
    known = counts.pop("all")
    lines = [f"{len(results):,} tests: {total['pass']:,} pass, {len(results) - total['pass']} do not, each for a reason given here.",
             f"Of {known['tensors']:,} tensors that come out, {known['type']:,} have an inferred type, {known['rank']:,} a rank, "
             f"{known['shape']:,} a full shape, {known['given']:,} where small inputs (shapes, axes, sizes) are constants; no fact is wrong.", "",
             "| operator | tests | pass | type | rank | shape | shape, given constants | why not the others |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for operator in sorted(counts, key=lambda name: (name.startswith("("), name)):
        row = counts[operator]
        shares = " | ".join(share(row[what], row["tensors"]) for what in ("type", "rank", "shape", "given"))
        lines.append(f"| {operator} | {row['tests']} | {row['pass']} | {shares} | {'; '.join(sorted(reasons[operator]))} |")
    return "\n".join(lines)


def written_table():
    text = PAGE.read_text()
    return text.split(BEGIN)[1].split(END)[0].strip()


def main():
    text = table(run_archive(), over_archive(run_facts))
    if "write" in sys.argv[1:]:
        page = PAGE.read_text()
        PAGE.write_text(page.split(BEGIN)[0] + BEGIN + "\n" + text + "\n" + END + page.split(END)[1])
    print(text)


if __name__ == "__main__":
    main()
