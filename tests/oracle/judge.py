"""The outside judge: Hugging Face's own, unmodified modelling code, on the CPU.

Two precisions. *f32* as the library ships. *all64*: the library computes norms, softmax and rotary tables in
torch.float32 whatever the weights are, so that name is bound to float64 while a model loads and runs; what is left
is the rewrite's own error. A twin passes when its logits differ by at most 2e-5 (f32) and 1e-11 (all64) of the largest.
"""
import contextlib
import json
import os
import shutil
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_grad_enabled(False)
torch.set_num_threads(2)

F32_TOLERANCE = 2e-5
ALL64_TOLERANCE = 1e-11


@contextlib.contextmanager
def all64():
    """Everything that the library calls float32 is float64 inside."""
    single, shorthand, method = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(single)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = single, shorthand, method


def load(folder, dtype):
    """The model in `folder`; every stored tensor must find its place and every place its tensor."""
    kind = json.loads(Path(folder, "config.json").read_text())["architectures"][0]
    if kind.endswith("ForMaskedLM"):
        auto = transformers.AutoModelForMaskedLM
    elif kind.endswith("Model") and not kind.endswith("LMHeadModel"):
        auto = transformers.AutoModel
    else:
        auto = transformers.AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, dtype=dtype, attn_implementation="eager", output_loading_info=True,
                                       ignore_mismatched_sizes=False, **experts(folder))
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[problem], f"{folder}: {problem} {sorted(info[problem])[:4]}"
    return model.eval()


def experts(folder):
    config = json.loads(Path(folder, "config.json").read_text())
    sparse = any(key in config for key in ("num_experts", "num_local_experts", "n_routed_experts"))
    return {"experts_implementation": "eager"} if sparse else {}


def input_ids(folder):
    with safe_open(Path(folder, "expected.safetensors"), "pt") as file:
        return file.get_tensor("input_ids")


def answer(model, ids):
    out = model(ids)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


def logits(folder, ids, precision):
    if precision == "all64":
        with all64():
            return answer(load(folder, torch.float64), ids).double()
    return answer(load(folder, torch.float32), ids).double()


def states(folder, ids, precision):
    """name -> value: the logits and, as the library numbers them, the hidden states before and after each layer."""
    def run(dtype):
        out = load(folder, dtype)(ids, output_hidden_states=True)
        named = {f"hidden_states.{i}": state.double() for i, state in enumerate(out.hidden_states)}
        return named | ({"logits": out.logits.double()} if hasattr(out, "logits") else {"hidden": out.last_hidden_state.double()})

    if precision == "all64":
        default = torch.get_default_dtype()
        with all64():
            # The base of dynamic rotary scaling is a whole number of tokens times a Python float: in the default dtype.
            torch.set_default_dtype(torch.float64)
            try:
                return run(torch.float64)
            finally:
                torch.set_default_dtype(default)
    return run(torch.float32)


def difference(source, twin, ids, precision):
    """Largest difference over the source's columns, as a share of the source's largest."""
    x, y = logits(source, ids, precision), logits(twin, ids, precision)
    return float((x - y[..., : x.shape[-1]]).abs().max() / x.abs().max())


def tensors(folder):
    out = {}
    for file in sorted(Path(folder).glob("*.safetensors")):
        if file.name != "expected.safetensors":
            out.update(load_file(file))
    return out


def widened(source, folder):
    """`source` stored in float64, so that a rewrite's irrational factors are not rounded away by storage."""
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir(parents=True)
    wide = {name: value.double() if value.is_floating_point() else value for name, value in tensors(source).items()}
    save_file({name: value.contiguous() for name, value in wide.items()}, Path(folder, "model.safetensors"), metadata={"format": "pt"})
    config = json.loads(Path(source, "config.json").read_text())
    config["dtype"] = "float64"
    Path(folder, "config.json").write_text(json.dumps(config, indent=2))
    for name in ("generation_config.json", "expected.safetensors"):
        if Path(source, name).exists():
            shutil.copy(Path(source, name), Path(folder, name))
    return folder
