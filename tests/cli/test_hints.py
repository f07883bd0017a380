"""What a refusal of `score` proposes can be done as it is said: each hint is followed, until the step is scored."""
import json
import re

import pytest

STEPS = {"pad_heads": "pad_heads {{ multiple: {} }}", "replicate_kv_heads": "replicate_kv_heads {{ to_multiple: {} }}", "pad_ffn": "pad_ffn {{ multiple: {} }}",
         "pad_vocab": "pad_vocab {{ multiple: {} mask: REFERENCE }}"}
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1000,
         "vocab_size": 1001, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "bfloat16", "max_position_embeddings": 4096}
GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 96, "n_head": 12, "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-5, "torch_dtype": "float32"}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "num_hidden_layers": 2, "hidden_size": 96, "num_attention_heads": 12, "intermediate_size": 384,
        "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "torch_dtype": "float32"}


class Question:
    """A score as flags, changed as hints say."""

    def __init__(self, tool, folder, config, **flags):
        self.tool, self.folder, self.config, self.flags, self.steps = tool, folder, config, dict(flags), []

    def ask(self):
        words = [word for flag, value in self.flags.items() for word in (f"--{flag}", value)]
        if self.steps:
            (self.folder / "hinted.textproto").write_text("".join(f"step {{ {step} }}\n" for step in self.steps))
            words += ["--recipe", self.folder / "hinted.textproto"]
        return self.tool("score", "--from-config", self.config, *words, "--format", "json")

    def axis(self, name, size):
        axes = dict(part.split("=") for part in self.flags.get("mesh", "tp=1").split(","))
        self.flags["mesh"] = ",".join(f"{axis}={value}" for axis, value in {**axes, name: size}.items())

    def follow(self, hint):
        """Does the first thing that the hint says; False where it proposes nothing."""
        found = re.search(r"(\w+) to (\d+) would do", hint)
        if found:
            self.steps.append(STEPS[found[1]].format(found[2]))
            return True
        found = re.search(r"\b(tp|ep)=(\d+) would do", hint) or re.search(r"a (pp) of at most (\d+)", hint)
        if found:
            self.axis(found[1], found[2])
            if "with ep=1" in hint:
                self.axis("ep", 1)
            return True
        found = re.search(r"(\d+) shards would do", hint)
        if found and "a batch of" not in hint:
            self.axis("tp", found[1])
            return True
        found = re.search(r"a (batch|context|past) of (?:at most )?(\d+)", hint)
        if found:
            self.flags[found[1]] = found[2]
            return True
        if "a chunk and a past of at most" in hint:
            most = int(re.search(r"at most (\d+) together", hint)[1])
            self.flags["chunk"], self.flags["past"] = most // 2, most - most // 2
            return True
        for words, change in (("give --mesh pp=2", {"mesh": "pp=2"}), ("leave them at 1", {"microbatches": None}), ("use --phase prefill", {"phase": "prefill"}), ("leave out --past", {"past": None}), ("give --phase mixed", {"phase": "mixed"}),
                              ("score one device", {"mesh": "tp=1"}), ("score fewer devices", {"mesh": "tp=1"})):
            if words in hint:
                self.flags = {flag: value for flag, value in {**self.flags, **change}.items() if value is not None}
                return True
        return False

    def settle(self):
        """Follows hints until there are none; (what is said last, the hints)."""
        hints = []
        for _ in range(12):
            done = self.ask()
            said = json.loads(done.out)
            hint = said["error"]["hint"] if done.code else said.get("twin", said).get("shortfall", "")
            if not hint:
                return said, hints
            assert hint not in hints, ("said twice", hint, hints)
            hints.append(hint)
            if not self.follow(hint):
                return said, hints
        raise AssertionError(hints)


@pytest.fixture
def question(tool, configs, tmp_path):
    def make(config, **flags):
        path = configs / config / "config.json" if isinstance(config, str) else tmp_path / "config.json"
        if not isinstance(config, str):
            path.write_text(json.dumps(config))
        return Question(tool, tmp_path, path, **flags)
    return make


def scored(said):
    return "error" not in said and said.get("twin", said)["feasible"] is True


MESHES = ["tp=3", "tp=5", "tp=6", "tp=7", "tp=12", "tp=28", "tp=48", "tp=96", "tp=250", "tp=4,ep=3", "tp=6,dp=2,ep=12", "tp=3,pp=99", "dp=7,ep=7"]


@pytest.mark.parametrize("model", ["gpt-oss-120b", "llama-3.1-8b", "qwen2.5-7b", "qwen3-30b-a3b", LLAMA, GPT2, BERT], ids=lambda m: m if isinstance(m, str) else m["model_type"])
def test_sizes_that_do_not_divide(question, model):
    refused = 0
    for mesh in MESHES:
        if "ep=" in mesh and "pp=" not in mesh and eval("*".join(re.findall(r"(?:tp|dp)=(\d+)", mesh))) % int(re.search(r"ep=(\d+)", mesh)[1]):
            continue  # no mesh
        asked = question(model, chip="v5p", mesh=mesh, phase="prefill", context=512, dtype="bf16")
        said, hints = asked.settle()
        assert scored(said), (mesh, hints, said)
        refused += bool(hints)
    assert refused >= 8


@pytest.mark.parametrize("chip", ["v2", "v3", "v4i", "v4", "v5e", "v6e", "tpu7x", "h100_sxm", "l4", "gh200", "mi300x"])
def test_what_does_not_fit(question, chip):
    """The shards that are proposed are scored, network included; where that is not known nothing is proposed."""
    for model, flags in (("gpt-oss-120b", {}), ("llama-3.1-8b", {"batch": 256, "context": 8192}), ("qwen3-30b-a3b", {"stack": "vllm"}),
                         ("llama-3.1-8b", {"mesh": "tp=1", "stack": "vllm"}), ("llama-3.1-8b", {"phase": "serve", "stack": "vllm"})):
        asked = question(model, chip=chip, dtype="bf16", **flags)
        first = json.loads(asked.ask().out)
        said, hints = asked.settle()
        if scored(said):
            continue
        last = hints[-1] if hints else ""
        assert "no source" in last or "no power of two" in last or said["error"]["code"] in ("TF1704", "TF1709"), (model, flags, hints, first)


@pytest.mark.parametrize("model, flags", [
    (GPT2, {"context": 1025}), (GPT2, {"context": 1024}), (GPT2, {"phase": "prefill", "context": 1025}), (GPT2, {"phase": "prefill", "context": 1000, "past": 100}),
    (GPT2, {"phase": "prefill", "context": 10, "past": 1024}), (GPT2, {"phase": "prefill", "context": 10, "past": 5000}), (GPT2, {"phase": "mixed", "context": 8, "chunk": 1000, "past": 100}),
    (GPT2, {"phase": "mixed", "context": 2000, "chunk": 10}), (GPT2, {"phase": "serve", "input-len": 1024, "output-len": 1024}), (BERT, {"phase": "prefill", "context": 513}),
    (BERT, {"context": 100}), (BERT, {"phase": "prefill", "context": 100, "past": 8}), (BERT, {"phase": "mixed", "context": 8, "chunk": 8})])
def test_places_that_a_table_does_not_have(question, model, flags):
    asked = question(model, chip="v6e", **flags)
    done = asked.ask()
    assert done.code in (2, 3) and json.loads(done.out)["error"]["code"] in ("TF1703", "TF1705"), done
    if flags.get("phase") in ("mixed", "serve"):
        return  # several flags would do
    said, hints = asked.settle()
    assert scored(said), (hints, said)


@pytest.mark.parametrize("flags", [{"mesh": "pp=2", "microbatches": 3, "batch": 8}, {"mesh": "tp=2,dp=3,pp=2", "microbatches": 4, "batch": 30}, {"microbatches": 2, "batch": 8},
                                   {"mesh": "pp=99", "batch": 8}, {"mesh": "pp=2", "phase": "mixed", "chunk": 64, "microbatches": 2, "batch": 8}])
def test_pipelines(question, flags):
    said, hints = question("llama-3.1-8b", chip="v5p", **flags).settle()
    assert hints and scored(said), (hints, said)
