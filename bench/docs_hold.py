"""Each line of docs/cost.md's table of what the model reaches is a line that `validate_cost --still` prints.

    python3 bench/docs_hold.py build/release/bench/validate_cost ../shared/data docs/cost.md
"""
import subprocess
import sys

program, data, page = sys.argv[1:]
said = set(subprocess.run([program, data, "--still"], capture_output=True, text=True, check=True).stdout.splitlines())
with open(page) as text:
    section = text.read().split("## What it reaches\n")[1].split("\n## ")[0]
lines = [line for line in section.splitlines() if line.startswith("| ") and ("| met |" in line or "| NOT met |" in line)]
wrong = [line for line in lines if line not in said]
print(f"{len(lines)} lines, {len(wrong)} of which the program does not print", *wrong, sep="\n")
sys.exit(1 if wrong or len(lines) < 20 else 0)
