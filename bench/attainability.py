#!/usr/bin/env python3
"""What the TPU compiler makes of twins beside their sources: the tables of docs/attainability.md, from the emitted StableHLO.

    attainability.py TWINFORGE CACHE                 writes every table anew into docs/attainability.md
    attainability.py TWINFORGE CACHE decode steps    these tables alone

TWINFORGE is the tool; it finds libtpu where pip put it, or $TWINFORGE_LIBTPU says where. CACHE is a folder of the
compiler's answers (`compile --cache`): a run that was ended goes on, and only what changed is compiled again. No TPU is
needed. Sizes are those of attainability_models.json, which says where each is from. The table "kernel" takes programs of
attainability_jax.py, which needs jax[tpu]: $TWINFORGE_JAX names a Python that has it, else python3 is asked; what it has
lowered is kept in CACHE/jax and lowered anew where that is removed.
"""
import csv
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "attainability.md"
NATIVE, DECODE = "tpu-exact-native", "tpu-exact-native-decode"
WIDEST = ROOT / "recipes" / "library" / f"{DECODE}.textproto"  # has each step

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
    """What the cost model says of the layers: rungs of source and twin, and the sum of the compiler's words as it foresees them."""
    batch, context = PHASES[phase]
    step = ["--from-config", ask.config(model), "--chip", topology.split(":")[0], "--phase", phase, "--batch", batch, "--context", context - (phase == "decode")]
    score = ask.run("score", *step, "--recipe", NATIVE)
    advice = next((row for row in ask.run("advise", *step).get("advice", []) if row["recipe"] == NATIVE), {})
    words = [word for word in advice.get("words", []) if word["of"] == "layer"]
    known = words and all(word["source"] != "unknown" for word in words)
    foreseen = sum((word["low"] + word["high"]) / 2 for word in words) if known else 0.0 if advice.get("verdict") == "nothing to do" else None
    return (rungs(score), rungs(score["twin"]), foreseen) if "ladder" in score and "twin" in score else (None, None, foreseen)


def pairs_table(ask, phase):
    rows, memory, notes = [], [], []
    agree = judged = 0
    for model, topology in PAIRS:
        name = f"{model}, {topology.split(':')[0]}"
        answer = ask.pair(model, topology, phase, "--recipe", NATIVE)
        before, after = layers_of(answer.get("source")), layers_of(answer.get("twin"))
        if before is None or after is None:
            notes.append(f"- {name}: {answer.get('error', {}).get('message') or why(answer['twin'] if after is None else answer.get('source'))}")
            continue
        of_source, of_twin, foreseen = predicted(ask, model, topology, phase)
        rung = [arrow(f"{of_source[key]:.3g}", f"{of_twin[key]:.3g}") if of_source else "–" for key in ("R2", "R3", "R4")]
        cycles = all_layers(before), all_layers(after)
        found = sign(*cycles)
        if foreseen is not None:
            judged += 1
            agree += sign(1, 1 + foreseen) == found
        fused = layers_of(ask.pair(model, topology, phase, "--recipe", DECODE).get("twin")) if phase == "decode" else None
        rows.append([name, f"{cycles[0]:,}", f"{cycles[1]:,} ({change(*cycles)})"] + ([change(cycles[0], all_layers(fused)) if fused else "–"] if phase == "decode" else []) + rung
                    + ["unknown" if foreseen is None else f"{100 * foreseen:+.1f} %", found, arrow(mib(total(before, "padding")), mib(total(after, "padding"))),
                       arrow(str(total(before, "copies")), str(total(after, "copies"))), arrow(str(total(before, "collectives")), str(total(after, "collectives")))])
        memory.append((name, answer))
    head = ["model, chip", "source, cycles", "twin, cycles"] + ["fused for decode"] * (phase == "decode") + ["R2, ms", "R3, ms", "R4, ms", "foreseen", "compiler", "padding, MiB", "copies", "collectives"]
    text = markdown([f"{phase}: " + head[0], *head[1:]], rows)
    text += f"\n\nOf {judged} pairs a change is foreseen; its sign (none within 1 %) is the compiler's in {agree}."
    text += "\n\n" + memory_table(memory, phase)
    return text + ("\n\n" + "\n".join(notes) if notes else "")


KEPT = {"decode": ("weights", "cache"), "prefill": ("weights",)}  # a prefill takes no cache


def memory_table(answers, phase):
    rows, worst = [], 0.0
    for name, answer in answers:
        cells = [name]
        for side in ("source", "twin"):
            counted = answer[side]["predicted"]
            tile = max((row["memory"].get("off", 0) for row in answer[side]["modules"] if row["compiled"]), key=abs)
            if "refused" in counted:
                cells += [f"{tile:+.2%}"] + ["–"] * len(KEPT[phase])
                continue
            cells.append(f"{tile:+.2%}")
            for what in KEPT[phase]:
                off = counted[what]["off"]
                cells.append("–" if off is None else f"{off:+.2%}")
                worst = max(worst, abs(off or 0))
        rows.append([cell.replace("%", " %") for cell in cells])
    head = ["memory off: model, chip"] + [f"{side}: {what}" for side in ("source", "twin") for what in ("tile rule", *KEPT[phase])]
    return markdown(head, rows) + f"\n\nFurthest off: {100 * worst:.2f} %."


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


def gains_of(name, ours, theirs):
    """(cycles without the step, with it) of the part that it changes; None: it changes nothing there."""
    of = lambda answer: [head_of(answer["twin"])] if name in HEAD_STEPS else layers_of(answer.get("twin"))
    with_it, without = of(ours), of(theirs)
    if not with_it or not without or None in with_it + without:
        return None
    same = [row["program_sha256"] for row in with_it] == [row["program_sha256"] for row in without]
    return None if same else (all_layers(without), all_layers(with_it))


def steps_table(ask, phase):
    """What each step adds: cycles of the twin over those of the twin without it."""
    whole = WIDEST.read_text()
    asked = {**LEFT_OUT, **HEAD_STEPS} if phase == "decode" else {name: LEFT_OUT[name] for name in ("orient o", "orient_weights", "fuse_qkv", "fuse_gate_up")}
    rows, found = [], {name: [] for name in asked}
    for model, topology in PAIRS:
        if model == "deepseek-v3":
            continue
        answer = ask.pair(model, topology, phase, "--recipe", DECODE)
        cells = [f"{model}, {topology.split(':')[0]}"]
        for name, leave_out in asked.items():
            path = ask.cache / f"without {name}.textproto"
            path.write_text(leave_out(whole))
            pair = gains_of(name, answer, ask.pair(model, topology, phase, "--recipe", path))
            cells.append("–" if pair is None else change(*pair))
            if pair:
                found[name].append(pair[1] / pair[0] - 1)
        rows.append(cells)
    counts = [("beyond -1 %", lambda one: one < -0.01), ("within 1 %", lambda one: abs(one) <= 0.01), ("beyond +1 %", lambda one: one > 0.01)]
    rows += [[words] + [str(sum(map(holds, found[name]))) for name in asked] for words, holds in counts]
    return markdown([f"{phase}: model, chip", *asked], rows)


# ---- kernels, and the second opinion

def jax_rows(ask):
    """What attainability_jax.py says of each pair that has plain heads."""
    folder = ask.cache / "jax"
    folder.mkdir(exist_ok=True)
    for model, topology in PAIRS:
        if model == "deepseek-v3":
            continue
        kept = folder / f"{model} {topology.replace(':', '-')}.jsonl"
        if not kept.exists():
            done = subprocess.run([os.environ.get("TWINFORGE_JAX", "python3"), HERE / "attainability_jax.py", ask.tool, folder, model, topology], capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{model}: {done.stderr[-2000:]}")
            kept.write_text(done.stdout)
        yield model, topology, folder, [json.loads(line) for line in kept.read_text().splitlines()]


def kernel_table(ask):
    rows, ratios, equal = [], [], 0
    for model, topology, folder, programs in jax_rows(ask):
        def compiled(program):
            module = ask.compile("--program", folder / program, "--topology", topology)["twin"]["modules"][0]
            return module if module["compiled"] else None

        def with_kernel(row):
            """What is left beside the kernels, and the cycles in which what they read arrives."""
            module = compiled(row["kernels"]) if "kernels" in row else None
            if module is None:
                return "–"
            caches = sum(one["padded_bytes"] for one in module["layouts"] if one["shape"].startswith("bf16[1,8,") and one["shape"].count(",") == 4)
            arrive = (caches + row["expert_bytes"]) // row["bytes_per_cycle"]
            return f"{module['cycles']:,} + {arrive:,} = {module['cycles'] + arrive:,}"

        first = programs[0]
        batch, context = PHASES["decode"]
        emitted = layers_of(ask.compile("--from-config", folder / first["config"], "--topology", topology, "--batch", batch, "--context", context, "--recipe", DECODE)["twin"])
        plain = compiled(first["plain"])
        equal += plain["cycles"] == first["jax_cycles"]
        ratios.append(first["jax_cycles"] / total(emitted, "cycles"))
        padded = programs[1] if len(programs) > 1 else None
        rows.append([f"{model}, {topology.split(':')[0]}", f"{total(emitted, 'cycles'):,}", f"{first['jax_cycles']:,}", f"{plain['cycles']:,}", f"{ratios[-1]:.2f}", with_kernel(first),
                     f"{compiled(padded['plain'])['cycles']:,}" if padded else "–", with_kernel(padded) if padded else "–"])
    head = ["one layer, decode", "StableHLO", "JAX, by JAX's own compile", "the same by `compile --program`", "JAX over StableHLO", "with the kernels", "padded to 128, XLA's attention", "padded, with the kernels"]
    return markdown(head, rows) + f"\n\nThe two ways of asking agree to the digit in {equal} of {len(rows)}; JAX over StableHLO: {min(ratios):.2f} to {max(ratios):.2f}."


# ---- how long it takes

SLOW = ("deepseek-v3", "gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b", "gemma-2-9b", "llama-3.1-8b")


def seconds_of(ask, model, topology, phase):
    """Of the twin's largest layer alone, nothing kept: on the clock, of the processor."""
    batch, context = PHASES[phase]
    folder = ask.cache / f"parts {model} {topology.replace(':', '-')} {phase}"
    if not folder.exists():
        words = ["--from-config", ask.config(model), "--recipe", NATIVE, "--to", "stablehlo", "--parts", "--phase", phase, "--batch", batch, "--context", context, "--out", folder]
        subprocess.run([ask.tool, "export", *map(str, words)], check=True, capture_output=True)
    layer = max(folder.glob("*layer*.mlir"), key=lambda path: path.stat().st_size)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([ask.tool, "compile", "--program", layer, "--topology", topology], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_table(ask):
    rows = []
    for model, topology in ((model, topology) for model, topology in PAIRS if model in SLOW):
        took = [seconds for phase in PHASES for seconds in seconds_of(ask, model, topology, phase)]
        print(f"{model}: {took}", file=sys.stderr, flush=True)
        rows.append([f"{model}, {topology.split(':')[0]}", *(f"{seconds:.1f}" for seconds in took)])
    return markdown(["largest layer of the twin", "decode: seconds", "of the processor", "prefill: seconds", "of the processor"], rows)


def tables():
    """Name -> how it is made; the names stand in docs/attainability.md where each begins and ends."""
    from attainability_split import split_table
    made = {"decode": lambda ask: pairs_table(ask, "decode"), "prefill": lambda ask: pairs_table(ask, "prefill"), "split": lambda ask: split_table(ask, "decode"),
            "split-prefill": lambda ask: split_table(ask, "prefill"), "orient": orient_table, "steps": lambda ask: steps_table(ask, "decode"),
            "steps-prefill": lambda ask: steps_table(ask, "prefill"),
            "kernel": kernel_table, "seconds": seconds_table}
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
