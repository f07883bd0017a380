#!/usr/bin/env python3
"""What the TPU compiler makes of twins beside their sources: docs/attainability.md, from the emitted StableHLO.

    attainability.py TWINFORGE CACHE > docs/attainability.md      asks the compiler what CACHE does not hold yet
    attainability.py TWINFORGE CACHE --only pairs|orient|split    one of its tables

TWINFORGE is the tool; it finds libtpu where pip put it, or $TWINFORGE_LIBTPU says where. CACHE is a folder of its
answers, one JSON file each, so that a run that was ended goes on. No TPU is needed. Sizes are those of published
configs; what a config says beside sizes is as the family's class has it by default.
"""
import json
import re
import subprocess
import sys
import time
from pathlib import Path

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}, "max_position_embeddings": 8192,
         "tie_word_embeddings": False, "dtype": "bfloat16"}


def llama(hidden, layers, heads, kv, width, words, head_dim=None, **more):
    config = {**LLAMA, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": kv, "intermediate_size": width, "vocab_size": words, **more}
    if head_dim:
        config["head_dim"] = head_dim
    return config


def of(model_type, architecture, base, **more):
    return {**base, "model_type": model_type, "architectures": [architecture], **more}


CONFIGS = {
    "llama-3.2-1b": llama(2048, 16, 32, 8, 8192, 128256, 64, tie_word_embeddings=True),
    "llama-3.1-8b": llama(4096, 32, 32, 8, 14336, 128256),
    "phi-3-mini": of("phi3", "Phi3ForCausalLM", llama(3072, 32, 32, 32, 8192, 32064), original_max_position_embeddings=4096,
                     pad_token_id=0, rope_parameters={"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 1.0}),
    "danube-1.8b": of("mistral", "MistralForCausalLM", llama(2560, 24, 32, 8, 6912, 32000), sliding_window=None),
    "danube3-4b": llama(3840, 24, 32, 8, 10240, 32000),
    "gemma-2-9b": of("gemma2", "Gemma2ForCausalLM", llama(3584, 42, 16, 8, 14336, 256000, 256), tie_word_embeddings=True,
                     hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
                     query_pre_attn_scalar=256, sliding_window=4096, attention_bias=False),
    "qwen2.5-7b": of("qwen2", "Qwen2ForCausalLM", llama(3584, 28, 28, 4, 18944, 152064), use_sliding_window=False),
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "n_embd": 768,
             "n_head": 12, "n_layer": 12, "n_positions": 4096, "layer_norm_epsilon": 1e-5, "vocab_size": 50257,
             "tie_word_embeddings": True, "dtype": "bfloat16"},
    "mixtral-2x7b": of("mixtral", "MixtralForCausalLM", llama(4096, 32, 32, 8, 14336, 32000), num_local_experts=2,
                       num_experts_per_tok=2, sliding_window=None),
    "mixtral-8x7b": of("mixtral", "MixtralForCausalLM", llama(4096, 32, 32, 8, 14336, 32000), num_local_experts=8,
                       num_experts_per_tok=2, sliding_window=None),
    "gpt-oss-20b": of("gpt_oss", "GptOssForCausalLM", llama(2880, 24, 64, 8, 2880, 201088, 64), num_local_experts=32,
                      num_experts_per_tok=4, sliding_window=128, attention_bias=True, swiglu_alpha=1.702, swiglu_limit=7.0,
                      layer_types=["sliding_attention", "full_attention"] * 12,
                      rope_parameters={"rope_theta": 150000.0, "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                                       "beta_slow": 1.0, "original_max_position_embeddings": 4096, "truncate": False}),
    "qwen3-30b-a3b": of("qwen3_moe", "Qwen3MoeForCausalLM", llama(2048, 48, 32, 4, 6144, 151936, 128), num_experts=128,
                        num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True, decoder_sparse_step=1,
                        mlp_only_layers=[], attention_bias=False, use_sliding_window=False),
    "deepseek-v3": of("deepseek_v3", "DeepseekV3ForCausalLM", llama(7168, 61, 128, 128, 18432, 129280), kv_lora_rank=512,
                      q_lora_rank=1536, qk_head_dim=192, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
                      moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, n_group=8, topk_group=4,
                      num_experts_per_tok=8, first_k_dense_replace=3, norm_topk_prob=True, routed_scaling_factor=2.5,
                      rope_interleave=True, attention_bias=False),
}
# model, topology, shards
PAIRS = [("llama-3.2-1b", "v6e:1x1", 1), ("llama-3.1-8b", "v5e:1x1", 1), ("danube-1.8b", "v6e:1x1", 1), ("phi-3-mini", "v5p:1x1x1", 1),
         ("danube3-4b", "v6e:1x1", 1), ("gemma-2-9b", "v5e:1x1", 1), ("gpt2", "v4:1x1x1", 1), ("mixtral-2x7b", "v6e:1x1", 1),
         ("mixtral-8x7b", "tpu7x:1x1x1", 1), ("gpt-oss-20b", "v6e:1x1", 1), ("qwen3-30b-a3b", "tpu7x:1x1x1", 1),
         ("deepseek-v3", "tpu7x:1x1x1", 1)]
# As cost/compiled/layers.csv has them: model there, model here.
RECORDED = [("llama1b", "llama-3.2-1b"), ("llama8b", "llama-3.1-8b"), ("phi3", "phi-3-mini"), ("phi2", "danube-1.8b"),
            ("gemma9b", "gemma-2-9b"), ("qwen7b", "qwen2.5-7b"), ("gptoss", "gpt-oss-20b"), ("qwen3moe", "qwen3-30b-a3b")]
REST = 'in_out: "o|gate|up|down|router" out_in: "q|k|v"'
ORIENT = {
    "q, k, v [out,in], rest [in,out]": "step { stack_experts { } } step { orient_weights { %s } }" % REST,
    "that, qkv and gate/up fused": "step { stack_experts { } } step { orient_weights { %s } } step { fuse_qkv { } } step { fuse_gate_up { } }" % REST,
    "everything [in,out]": 'step { stack_experts { } } step { orient_weights { in_out: "q|k|v|o|gate|up|down|router" } }',
}
STEP = ["--batch", "8", "--context", "2048"]


class Asker:
    def __init__(self, tool, cache):
        self.tool, self.cache = tool, cache
        cache.mkdir(parents=True, exist_ok=True)

    def __call__(self, name, *words):
        """The verb's JSON; a diagnostic's in place of it."""
        path = self.cache / (re.sub(r"[^\w.-]+", "_", name) + ".json")
        if not path.exists():
            began = time.monotonic()
            done = subprocess.run([self.tool, "compile", *map(str, words), "--format", "json"], capture_output=True, text=True)
            answer = json.loads(done.stdout)
            answer["seconds"] = time.monotonic() - began
            print(f"{name}: exit {done.returncode}, {answer['seconds']:.0f} s", file=sys.stderr, flush=True)
            path.write_text(json.dumps(answer))
        return json.loads(path.read_text())

    def config(self, model):
        path = self.cache / f"{model}.config.json"
        path.write_text(json.dumps(CONFIGS[model]))
        return path

    def recipe(self, name, steps):
        path = self.cache / f"{name}.textproto"
        path.write_text(f'name: "{name}" description: "{name}" require: REASSOCIATED {steps}\n')
        return path


def layers_of(side):
    """The parts that are layers, of a side of an answer; None: refused."""
    if side is None or "modules" not in side:
        return None
    layers = [row for row in side["modules"] if row["kind"].startswith("layers")]
    return layers if layers and all(row["compiled"] for row in layers) else None


def total(layers, key):
    if key == "copies":
        return sum(len(row[key]) for row in layers)
    if key == "collectives":
        return sum(one["count"] for row in layers for one in row[key])
    if key == "padding":
        return sum(one["padded_bytes"] - one["bytes"] for row in layers for one in row["layouts"])
    return sum(row[key] for row in layers)


def change(before, after):
    return "–" if not before else f"{100 * (after / before - 1):+.1f} %"


def mib(count):
    return f"{count / 2**20:,.1f}"


def off(layers):
    """The largest difference between the compiler's argument bytes and the tile rule's, of the parts."""
    worst = max((row["memory"].get("off", 0) for row in layers), key=abs)
    return f"{100 * worst:+.2f} %"


def why(side):
    if side is None:
        return "not asked"
    if "refused" in side:
        return side["refused"]
    errors = [row["error"] for row in side.get("modules", []) if not row["compiled"]]
    return errors[0].splitlines()[0][:160] if errors else "no layer"


def pair_rows(ask):
    for model, topology, shards in PAIRS:
        words = ["--from-config", ask.config(model), "--topology", topology, "--shards", shards, *STEP]
        native = ask(f"{model} {topology} native", *words, "--recipe", "tpu-exact-native")
        # No paged kernel serves latent attention.
        paged = {} if model == "deepseek-v3" else ask(f"{model} {topology} paged", *words, "--recipe", "tpu-exact-native", "--kernel", "paged")
        yield model, topology, native, paged


def pairs_table(ask):
    print("| model, chip | source: cycles | twin | for the paged kernel | padding, MiB | copies | memory off |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    slowest, worst, notes = 0, 0, []
    for model, topology, native, paged in pair_rows(ask):
        name = f"{model}, {topology}"
        if "error" in native:
            notes.append(f"{name}: {native['error']['message']}")
            continue
        before, after, padded = (layers_of(side) for side in (native.get("source"), native["twin"], paged.get("twin")))
        if before is None or after is None:
            notes.append(f"{name}: {why(native.get('source') if before is None else native['twin'])}")
            continue
        parts = len(native["source"]["modules"]) + len(native["twin"]["modules"])
        slowest = max(slowest, native["seconds"] / parts)
        worst = max([worst, *(abs(row["memory"].get("off", 0)) for row in before + after)])
        cycles = total(before, "cycles")
        cells = [name, f"{cycles:,}", f"{total(after, 'cycles'):,} ({change(cycles, total(after, 'cycles'))})",
                 "–" if padded is None else f"{total(padded, 'cycles'):,} ({change(cycles, total(padded, 'cycles'))})",
                 f"{mib(total(before, 'padding'))} → {mib(total(after, 'padding'))}",
                 f"{total(before, 'copies')} → {total(after, 'copies')}", f"{off(before)}, {off(after)}"]
        print("| " + " | ".join(cells) + " |")
    print(f"\nMemory: over all parts of these rows the compiler's argument bytes are within {100 * worst:.2f} % of the tile rule's. "
          f"The slowest pair took {slowest:.0f} s a part.\n")
    for note in notes:
        print(f"- not compiled: {note}")


def recorded(generation, model, rewrite):
    import csv
    table = Path(__file__).resolve().parents[1] / "cost" / "compiled" / "layers.csv"
    rows = {row["rewrite"]: int(row["est_cycles"]) for row in csv.DictReader(table.open(newline=""))
            if (row["generation"], row["model"], row["phase"], row["mode"]) == (generation, model, "decode8", "default")}
    return change(rows["src"], rows[rewrite]) if "src" in rows and rewrite in rows else "–"


def orient_table(ask):
    words = {"q, k, v [out,in], rest [in,out]": "qkv_oi_rest_io", "that, qkv and gate/up fused": "qkv_oi_rest_io+fused", "everything [in,out]": "w_in_out"}
    print("| layer, v6e | " + " | ".join(f"{name}: emitted, recorded" for name in ORIENT) + " |")
    print("| --- |" + " --- |" * len(ORIENT))
    for there, model in RECORDED:
        cells = []
        for index, (name, steps) in enumerate(ORIENT.items()):
            answer = ask(f"{model} v6e orient {index}", "--from-config", ask.config(model), "--topology", "v6e:1x1", *STEP,
                         "--recipe", ask.recipe(f"orient-{index}", steps))
            before, after = layers_of(answer.get("source")), layers_of(answer.get("twin"))
            if before is None or after is None:
                cells.append(answer.get("error", {}).get("message") or why(answer["twin"]))
                continue
            other = "" if there != "phi2" else " (phi-2)"
            cells.append(f"{change(total(before, 'cycles'), total(after, 'cycles'))}, {recorded('v6e', there, words[name])}{other}")
        print(f"| {model} | " + " | ".join(cells) + " |")


# ---- 28 heads on 8 devices

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


def split_table(ask):
    model, topology = "qwen2.5-7b", "v6e:2x4"
    config = ask.config(model)
    twin = ask(f"{model} 8-way twin", "--from-config", config, "--topology", topology, "--shards", 8, *STEP, "--recipe", "tpu-exact-native")
    folder = ask.cache / "source-parts"
    if not folder.exists():
        subprocess.run([ask.tool, "export", "--from-config", config, "--to", "stablehlo", "--parts", "--phase", "decode", *STEP, "--out", folder], check=True, capture_output=True)
    listed = {path: json.loads(path.read_text()) for path in folder.glob("*.arguments.json")}
    path, known = next((path, one) for path, one in listed.items() if one["part"].startswith("layer"))
    layer = Path(str(path).replace(".arguments.json", ".mlir"))
    rows = [("twin: 28 → 32 query heads, 4 → 8 key/value heads", layers_of(twin["twin"]), why(twin["twin"]))]
    for name, axis in CACHES.items():
        program = ask.cache / f"source cache {name}.mlir"
        program.write_text(cut_by_hand(layer.read_text(), known["arguments"], axis))
        answer = ask(f"{model} 8-way source {name}", "--program", program, "--topology", topology)
        module = answer["twin"]["modules"][0]
        rows.append((f"source, cache {name}", [module] if module["compiled"] else None, module.get("error", "")))
    print(f"As the tool itself splits the source: {twin['source'].get('refused', 'it does')}.\n")
    print("| one layer on 8 devices of v6e | cycles | argument MiB a device | copies, their cycles | collectives |")
    print("| --- | --- | --- | --- | --- |")
    for name, layers, refused in rows:
        if layers is None:
            print(f"| {name} | refused: {refused.splitlines()[0][:120]} | | | |")
            continue
        counts = {}
        for one in (one for row in layers for one in row["collectives"]):
            counts[one["kind"]] = counts.get(one["kind"], 0) + one["count"]
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        print(f"| {name} | {total(layers, 'cycles'):,} | {mib(total(layers, 'argument_bytes'))} | {total(layers, 'copies')}, {total(layers, 'copy_cycles'):,} | {kinds or 'none'} |")


def main(argv):
    if len(argv) < 2 or argv[1].startswith("-"):
        sys.exit(__doc__)
    ask = Asker(argv[0], Path(argv[1]))
    only = argv[argv.index("--only") + 1] if "--only" in argv else ""
    for name, table in (("pairs", pairs_table), ("orient", orient_table), ("split", split_table)):
        if only in ("", name):
            table(ask)
            print()


if __name__ == "__main__":
    main(sys.argv[1:])
