"""28 heads on 8 devices: a source cut by hand where its heads do not divide, beside its twin. Used by attainability.py."""
import json
import re
import subprocess
from pathlib import Path

from attainability import NATIVE, PHASES, layers_of, markdown, mib, total, why

# Which axis of a source's tensor is cut, by the end of its name; weights lie [out, in].
CUT = {"attn.q": 0, "attn.k": 0, "attn.v": 0, "attn.q_bias": 0, "attn.k_bias": 0, "attn.v_bias": 0, "attn.o": 1, "mlp.gate": 0, "mlp.up": 0, "mlp.down": 1}
# Of its cache [batch, place, kv head, head_dim].
CACHES = {"held whole": None, "cut along sequences": 0, "cut along places": 1, "cut along head_dim": 3}


def cut_by_hand(text, arguments, cache_axis, parts=8):
    """The source's module with its tensors cut over `parts` devices, where heads do not divide: by rows and columns."""
    text = text.replace("\n", f'\n  sdy.mesh @mesh = <["model"={parts}]>\n', 1)
    text = text.replace("mhlo.num_partitions = 1 :", f"mhlo.num_partitions = {parts} :", 1)
    start = text.index("func.func public @main(")
    end = text.index(") -> (", start)
    places = iter(arguments)

    def cut(found):
        argument = next(places)
        axis = cache_axis if argument["kind"] == "cache" else None
        if argument["kind"] == "weight":
            axis = next((cut for name, cut in CUT.items() if argument["name"].endswith(name)), None)
        if axis is None or argument["shape"][axis] % parts:
            return found.group(0)
        split = ", ".join('{"model"}' if i == axis else "{}" for i in range(len(argument["shape"])))
        attributes = ", ".join(filter(None, [f"sdy.sharding = #sdy.sharding<@mesh, [{split}]>", found.group(2)]))
        return f"{found.group(1)} {{{attributes}}}"

    head = re.sub(r"(%[^\s:]+: tensor<[^>]*>)(?: \{([^}]*)\})?", cut, text[start:end])
    return text[:start] + head + text[end:]


def source_layer(ask, model, phase):
    """The source's layer as emitted for one device, and its arguments."""
    batch, context = PHASES[phase]
    folder = ask.cache / f"source-parts {phase}"
    if not folder.exists():
        subprocess.run([ask.tool, "export", "--from-config", ask.config(model), "--to", "stablehlo", "--parts", "--phase", phase, "--batch", str(batch), "--context", str(context),
                        "--out", folder], check=True, capture_output=True)
    listed = {path: json.loads(path.read_text()) for path in folder.glob("*.arguments.json")}
    path, known = next((path, one) for path, one in listed.items() if one["part"].startswith("layer"))
    return Path(str(path).replace(".arguments.json", ".mlir")).read_text(), known["arguments"]


def split_table(ask, phase):
    model, topology = "qwen2.5-7b", "v6e:2x4"
    twin = ask.pair(model, topology, phase, "--shards", 8, "--recipe", NATIVE)
    text, arguments = source_layer(ask, model, phase)
    rows = [("twin: 28 → 32 query heads, 4 → 8 key/value heads", layers_of(twin["twin"]), why(twin["twin"]))]
    for name, axis in CACHES.items() if phase == "decode" else [("cut by rows and columns", None)]:
        program = ask.cache / f"source {phase} {name}.mlir"
        program.write_text(cut_by_hand(text, arguments, axis))
        answer = ask.compile("--program", program, "--topology", topology)
        module = answer["twin"]["modules"][0]
        rows.append((f"source, cache {name}" if phase == "decode" else f"source, {name}", [module] if module["compiled"] else None, module.get("error", "")))
    cells = []
    for name, layers, refused in rows:
        if layers is None:
            cells.append([name, f"refused: {refused.splitlines()[0][:120]}", "", "", ""])
            continue
        counts = {}
        for one in (one for row in layers for one in row["collectives"]):
            counts[one["kind"]] = counts.get(one["kind"], 0) + one["count"]
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        cells.append([name, f"{total(layers, 'cycles'):,}", mib(total(layers, "argument_bytes")), f"{total(layers, 'copies')}, {total(layers, 'copy_cycles'):,}", kinds or "none"])
    says = f"As the tool itself splits the source: {twin['source'].get('refused', 'it does')}.\n\n" if phase == "decode" else ""
    return says + markdown([f"{phase}: one layer on 8 devices of v6e", "cycles", "argument MiB a device", "copies, their cycles", "collectives"], cells)
