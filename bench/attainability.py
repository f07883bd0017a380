#!/usr/bin/env python3
"""What the TPU compiler makes of twins beside their sources: the tables of docs/attainability.md, from the emitted StableHLO.

    attainability.py TWINFORGE CACHE                 writes every table anew into docs/attainability.md
    attainability.py TWINFORGE CACHE decode steps    these tables alone

TWINFORGE is the tool; it finds libtpu where pip put it, or $TWINFORGE_LIBTPU says where. CACHE is a folder of the
compiler's answers (`compile --cache`): a run that was ended goes on, and only what changed is compiled again. No TPU is
needed. Sizes are those of attainability_models.json, which says where each is from. The tables "kernel" and "jax" are
made by attainability_jax.py, which needs jax[tpu], and only where a Python that has it is named by $TWINFORGE_JAX.
"""
import csv
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "attainability.md"
NATIVE = ROOT / "recipes" / "library" / "tpu-exact-native.textproto"

# model, topology; each on one device.
PAIRS = [("llama-3.2-1b", "v6e:1x1"), ("llama-3.1-8b", "v5e:1x1"), ("granite-3b", "v6e:1x1"), ("phi-3-mini", "v5p:1x1x1"),
         ("llama-8b-hd120", "v6e:1x1"), ("gemma-2-9b", "v5e:1x1"), ("gpt2-medium", "v4:1x1x1"), ("mixtral-2x7b", "v6e:1x1"),
         ("mixtral-8x7b", "tpu7x:1x1x1"), ("gpt-oss-20b", "v6e:1x1"), ("qwen3-30b-a3b", "tpu7x:1x1x1"),
         ("deepseek-v3", "tpu7x:1x1x1")]
PHASES = {"decode": (8, 2048), "prefill": (1, 512)}  # batch, context
# As cost/compiled/layers.csv has them: model there, model here.
RECORDED = [("llama1b", "llama-3.2-1b"), ("llama8b", "llama-3.1-8b"), ("phi3", "phi-3-mini"), ("phi2", "granite-3b"),
            ("gemma9b", "gemma-2-9b"), ("qwen7b", "qwen2.5-7b"), ("gptoss", "gpt-oss-20b"), ("qwen3moe", "qwen3-30b-a3b")]
REST = 'in_out: "o|gate|up|down|router" out_in: "q|k|v"'
STACK = "step { stack_experts { } } "
ORIENT = {
    "q, k, v [out,in], rest [in,out]": (STACK + "step { orient_weights { %s } }" % REST, "qkv_oi_rest_io"),
    "that, qkv and gate/up fused": (STACK + "step { orient_weights { %s } } step { fuse_qkv { } } step { fuse_gate_up { } }" % REST, "qkv_oi_rest_io+fused"),
    "everything [in,out]": (STACK + 'step { orient_weights { in_out: "q|k|v|o|gate|up|down|router" } }', "w_in_out"),
}


def models():
    """Key -> entry of attainability_models.json."""
    return {entry["key"]: entry for entry in json.loads((HERE / "attainability_models.json").read_text())["models"]}


def config_of(entry):
    """As config.json has it; a change to null takes the key away."""
    config = {**entry["config"], **entry["changed"]}
    return {key: value for key, value in config.items() if value is not None or key not in entry["changed"] or key == "sliding_window"}


class Asker:
    def __init__(self, tool, cache):
        self.tool, self.cache, self.models = tool, cache, models()
        cache.mkdir(parents=True, exist_ok=True)

    def run(self, *words):
        done = subprocess.run([self.tool, *map(str, words), "--format", "json"], capture_output=True, text=True)
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}, {done.stderr}")

    def compile(self, *words):
        began = time.monotonic()
        answer = self.run("compile", *words, "--cache", self.cache / "answers", "--timeout", 3600)
        print(f"{time.monotonic() - began:6.0f} s  compile {' '.join(str(word).split('/')[-1] for word in words)}", file=sys.stderr, flush=True)
        return answer

    def config(self, model):
        path = self.cache / f"{model}.json"
        path.write_text(json.dumps(config_of(self.models[model])))
        return path

    def recipe(self, name, steps):
        path = self.cache / f"{name}.textproto"
        path.write_text(f'name: "{name}" description: "{name}" require: REASSOCIATED {steps}\n')
        return path

    def pair(self, model, topology, phase, *words):
        batch, context = PHASES[phase]
        return self.compile("--from-config", self.config(model), "--topology", topology, "--phase", phase, "--batch", batch, "--context", context, *words)


# ---- figures of an answer

def layers_of(side):
    """The parts that are layers, of a side of an answer; None: refused."""
    if side is None or "modules" not in side:
        return None
    layers = [row for row in side["modules"] if row["kind"].startswith("layers")]
    return layers if layers and all(row["compiled"] for row in layers) else None


def head_of(side):
    return next((row for row in side.get("modules", []) if row["kind"] == "head" and row["compiled"]), None)


def total(layers, key):
    """Of one layer of each kind."""
    if key == "copies":
        return sum(len(row[key]) for row in layers)
    if key == "collectives":
        return sum(one["count"] for row in layers for one in row[key])
    if key == "padding":
        return sum(one["padded_bytes"] - one["bytes"] for row in layers for one in row["layouts"])
    return sum(row[key] for row in layers)


def all_layers(layers):
    return sum(row["count"] * row["cycles"] for row in layers)


def change(before, after):
    return "–" if not before else f"{100 * (after / before - 1):+.1f} %"


def mib(count):
    return f"{count / 2**20:,.1f}"


def why(side):
    if side is None:
        return "not asked"
    if "refused" in side:
        return side["refused"]
    errors = [row["error"] for row in side.get("modules", []) if not row["compiled"]]
    return errors[0].splitlines()[0][:160] if errors else "no layer"


def arrow(before, after):
    return f"{before} → {after}" if before != after else before


def sign(before, after, least=0.01):
    ratio = after / before - 1 if before else 0
    return "gain" if ratio < -least else "loss" if ratio > least else "none"


def markdown(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "| --- |" + " --- |" * (len(head) - 1)] + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


# ---- twelve pairs

def rungs(score, words=("R2", "R3", "R4")):
    """Milliseconds of the layers at these rungs."""
    sums = [0.0] * 9
    for op in score["ops"]:
        if op["path"].startswith("layers."):
            for rung, seconds in enumerate(op["added_seconds"]):
                sums[rung] += seconds
    return {f"R{rung}": 1e3 * sum(sums[:rung + 1]) for rung in range(9) if f"R{rung}" in words}


def predicted(ask, model, topology, phase):
    """What the cost model says of the layers: (rungs of source, of twin, the compiler's word as it foresees it)."""
    batch, context = PHASES[phase]
    step = ["--from-config", ask.config(model), "--chip", topology.split(":")[0], "--phase", phase, "--batch", batch, "--context", context - (phase == "decode")]
    score = ask.run("score", *step, "--recipe", "tpu-exact-native")
    advice = next((row for row in ask.run("advise", *step).get("advice", []) if row["recipe"] == "tpu-exact-native"), None)
    if "ladder" not in score:
        return None, None, advice
    return rungs(score), rungs(score["twin"]), advice


WORD = {"gain": "gain", "loss": "loss", "no change": "none", "unknown": "unknown"}


def pairs_table(ask, phase):
    rows, memory, notes = [], [], []
    agree = judged = 0
    for model, topology in PAIRS:
        name = f"{model}, {topology.split(':')[0]}"
        answer = ask.pair(model, topology, phase, "--recipe", "tpu-exact-native")
        if "error" in answer:
            notes.append(f"- {name}: {answer['error']['message']}")
            continue
        before, after = layers_of(answer.get("source")), layers_of(answer["twin"])
        of_source, of_twin, advice = predicted(ask, model, topology, phase)
        foreseen = WORD[advice["compiler"]] if advice else "unknown"
        rung = [arrow(f"{of_source[key]:.3g}", f"{of_twin[key]:.3g}") if of_source else "–" for key in ("R2", "R3", "R4")]
        if before is None or after is None:
            side = "source" if before is None else "twin"
            notes.append(f"- {name}: the compiler refuses the {side}: {why(answer.get('source') if before is None else answer['twin'])}")
            if after is None:
                continue
            rows.append([name, "refused", f"{all_layers(after):,}", *rung, f"{foreseen}, –", mib(total(after, "padding")), total(after, "copies"), total(after, "collectives")])
            continue
        found = sign(all_layers(before), all_layers(after))
        if of_source and of_twin["R4"] != of_source["R4"]:
            foreseen = sign(of_source["R4"], of_twin["R4"]) if foreseen == "unknown" else foreseen
        if foreseen != "unknown":
            judged += 1
            agree += foreseen == found
        rows.append([name, f"{all_layers(before):,}", f"{all_layers(after):,} ({change(all_layers(before), all_layers(after))})", *rung,
                     f"{foreseen}, {found}", arrow(mib(total(before, "padding")), mib(total(after, "padding"))),
                     arrow(str(total(before, "copies")), str(total(after, "copies"))), arrow(str(total(before, "collectives")), str(total(after, "collectives")))])
        memory.append((name, answer))
    text = markdown(["model, chip", "source, cycles", "twin, cycles", "R2, ms", "R3, ms", "R4, ms", "sign: foreseen, compiled", "padding, MiB", "copies", "collectives"], rows)
    text += f"\n\nForeseen and compiled signs agree in {agree} of the {judged} pairs of which a sign is foreseen."
    text += "\n\n" + memory_table(memory) if memory else ""
    return text + ("\n\n" + "\n".join(notes) if notes else "")


def memory_table(answers):
    rows, worst = [], 0.0
    for name, answer in answers:
        cells = [name]
        for side in ("source", "twin"):
            counted = answer[side]["predicted"]
            tile = max((row["memory"].get("off", 0) for row in answer[side]["modules"] if row["compiled"]), key=abs)
            if "refused" in counted:
                cells += [f"{tile:+.2%}", "–", "–"]
                continue
            cells.append(f"{tile:+.2%}")
            for what in ("weights", "cache"):
                off = counted[what]["off"]
                cells.append("–" if off is None else f"{off:+.2%}")
                worst = max(worst, abs(off or 0))
        rows.append([cell.replace("%", " %") for cell in cells])
    head = ["memory off: model, chip", "source: tile rule", "weights", "cache", "twin: tile rule", "weights", "cache"]
    return markdown(head, rows) + f"\n\nFurthest of weights and caches: {100 * worst:.2f} %."


# ---- orientation, role by role

def recorded(generation, model, rewrite):
    table = ROOT / "cost" / "compiled" / "layers.csv"
    rows = {row["rewrite"]: int(row["est_cycles"]) for row in csv.DictReader(table.open(newline=""))
            if (row["generation"], row["model"], row["phase"], row["mode"]) == (generation, model, "decode8", "default")}
    return change(rows["src"], rows[rewrite]) if "src" in rows and rewrite in rows else "–"


def orient_table(ask):
    rows = []
    for there, model in RECORDED:
        cells = [model if there != "phi2" else f"{model} (recorded: phi-2)"]
        for index, (steps, rewrite) in enumerate(ORIENT.values()):
            answer = ask.pair(model, "v6e:1x1", "decode", "--recipe", ask.recipe(f"orient-{index}", steps))
            before, after = layers_of(answer.get("source")), layers_of(answer.get("twin"))
            if before is None or after is None:
                cells.append(answer.get("error", {}).get("message") or why(answer["twin"]))
                continue
            cells.append(f"{change(all_layers(before), all_layers(after))}, {recorded('v6e', there, rewrite)}")
        rows.append(cells)
    return markdown(["layer, v6e, decode"] + [f"{name}: emitted, recorded" for name in ORIENT], rows)


# ---- each step of the recipe

def without_role(text, roles):
    """The recipe's text with these roles lying as published."""
    return re.sub(r'in_out: "([^"]*)"', lambda found: 'in_out: "%s"' % "|".join(role for role in found.group(1).split("|") if role not in roles), text)


def without_step(text, step):
    return re.sub(r"step \{ %s \{[^}]*\} \}\n" % step, "", text)


LEFT_OUT = {
    "orient o": lambda text: without_role(text, ["o"]),
    "orient gate, up": lambda text: without_role(text, ["gate", "up", "shared_gate", "shared_up"]),
    "orient down": lambda text: without_role(text, ["down", "shared_down"]),
    "orient router": lambda text: without_role(text, ["router"]),
    "orient_weights": lambda text: without_step(text, "orient_weights"),
    "fuse_qkv": lambda text: without_step(text, "fuse_qkv"),
    "fuse_gate_up": lambda text: without_step(text, "fuse_gate_up"),
}
HEAD_STEPS = {"orient lm_head": lambda text: without_role(text, ["lm_head"]), "pad_vocab": lambda text: without_step(text, "pad_vocab")}


def steps_table(ask, phase):
    """What each step adds: cycles of the twin over those of the twin without it."""
    whole = NATIVE.read_text()
    rows, verdict = [], {}
    for model, topology in PAIRS:
        if model == "deepseek-v3":
            continue
        answer = ask.pair(model, topology, phase, "--recipe", "tpu-exact-native")
        with_all = layers_of(answer.get("twin"))
        cells = [f"{model}, {topology.split(':')[0]}"]
        for name, leave_out in {**LEFT_OUT, **HEAD_STEPS}.items():
            path = ask.cache / f"native without {name}.textproto"
            path.write_text(leave_out(whole))
            other = ask.pair(model, topology, phase, "--recipe", path)
            if name in HEAD_STEPS:
                ours, theirs = head_of(answer["twin"]), head_of(other["twin"])
                same = ours and theirs and ours["program_sha256"] == theirs["program_sha256"]
                pair = (theirs["cycles"], ours["cycles"]) if ours and theirs else None
            else:
                layers = layers_of(other.get("twin"))
                same = layers and [row["program_sha256"] for row in layers] == [row["program_sha256"] for row in with_all]
                pair = (all_layers(layers), all_layers(with_all)) if layers and with_all else None
            cells.append("–" if same or pair is None else change(*pair))
            if not same and pair:
                verdict.setdefault(name, []).append(pair[1] / pair[0] - 1)
        rows.append(cells)
    says = [f"{name} {sum(one < -0.01 for one in found)} gain, {sum(abs(one) <= 0.01 for one in found)} within 1 %, {sum(one > 0.01 for one in found)} loss"
            for name, found in verdict.items()]
    return markdown([f"{phase}: model, chip", *LEFT_OUT, *HEAD_STEPS], rows) + "\n\nOf each: " + "; ".join(says) + "."


def tables():
    """Name -> how it is made; the names stand in docs/attainability.md where each begins and ends."""
    from attainability_split import split_table
    made = {"decode": lambda ask: pairs_table(ask, "decode"), "prefill": lambda ask: pairs_table(ask, "prefill"), "split": lambda ask: split_table(ask, "decode"),
            "split-prefill": lambda ask: split_table(ask, "prefill"), "orient": orient_table, "steps": lambda ask: steps_table(ask, "decode"),
            "steps-prefill": lambda ask: steps_table(ask, "prefill")}
    return made


def place(page, name, table):
    """The page with this table in its place."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    before, rest = page.split(begin)
    return before + begin + table + end + rest.split(end)[1]


def main(argv):
    if len(argv) < 2 or argv[0].startswith("-"):
        sys.exit(__doc__)
    ask = Asker(argv[0], Path(argv[1]))
    made = tables()
    for name in argv[2:] or made:
        table = made[name](ask)
        PAGE.write_text(place(PAGE.read_text(), name, table))
        print(table, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
