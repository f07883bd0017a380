"""Emitted modules by path, and what their tests compare them with."""
import importlib.util
import json
from pathlib import Path

import numpy as np
from oracles import NAMES

TOLERANCE = 2e-5        # of the largest logit, everything in float32
ENCODERS = {"bert"}
# Frequencies follow the length, and keys keep those of their own time, as in the library: beyond the trained length a
# step is no longer what the whole sequence gives.
TRAINED = {"llama__dynamic": 8, "phi3__longrope": 8}
# Forms that differ only in how the source's files are cut are left to one of them.
FAMILIES = [name for name in NAMES if "__sharded" not in name or name == "llama__sharded"]

WAYS = {
    "as it is": ("hf", 'name: "none" step { pad_vocab { multiple: 1 } }'),
    "portable": ("hf", "tpu-exact-portable"),
    "native": ("twin", "tpu-exact-native-decode"),
    "stacked": ("twin", 'name: "stacked" step { use: "tpu-exact-native" } step { group_experts { size: 2 } } step { stack_layers { } }'),
}
FOR_A_SLICE = ("--shards", "2", "--kernel", "paged")
# One of each kind of block is enough where the recipe is not the library's.
SOME = ["llama", "gemma2", "gpt_oss", "deepseek_v3", "gpt2", "bert"]
CASES = [(name, way) for way in ("portable", "native") for name in FAMILIES] + \
        [(name, way) for way in ("as it is", "stacked") for name in SOME]


def module_at(path):
    """The module in a file, loaded as a stranger would, whatever folder is the working one."""
    spec = importlib.util.spec_from_file_location(f"emitted_{abs(hash(str(path)))}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(folder, pattern="model*.safetensors"):
    """name -> numpy value of every tensor in a folder's files, read without the code under test."""
    import ml_dtypes
    kinds = {"F64": np.float64, "F32": np.float32, "BF16": ml_dtypes.bfloat16, "I64": np.int64}
    found = {}
    for path in sorted(Path(folder).glob(pattern)):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = (8 + size + at for at in entry["data_offsets"])
                found[name] = np.frombuffer(data[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return found


def judged(folder):
    """The judge's input_ids and answer for a checkpoint."""
    expected = stored(folder, "expected.safetensors")
    return expected["input_ids"].astype(np.int32), expected["logits"]


def widened(source, folder):
    """The same checkpoint in float32, so that a rewrite's factors are not rounded to bfloat16."""
    from safetensors.numpy import save_file
    folder.mkdir(parents=True)
    save_file({name: np.ascontiguousarray(value.astype(np.float32)) for name, value in stored(source).items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    return folder


def headless(oracles, folder):
    """Bert's checkpoint without its head, as BertModel, with a pooler that nothing else reads."""
    from safetensors.numpy import save_file
    tensors = {name: value for name, value in stored(oracles / "bert").items() if not name.startswith("cls.")}
    width = len(tensors["bert.embeddings.LayerNorm.weight"])
    tensors |= {"bert.pooler.dense.weight": np.eye(width, dtype=np.float32), "bert.pooler.dense.bias": np.ones(width, np.float32)}
    folder.mkdir(parents=True)
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    config = json.loads((oracles / "bert" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    return folder


def judged_hidden(folder):
    """The judge's input_ids, and what the last layer of a checkpoint leaves behind."""
    expected = stored(folder, "expected.safetensors")
    last = max(int(name.split(".")[1]) for name in expected if name.startswith("hidden_states."))
    return expected["input_ids"].astype(np.int32), expected[f"hidden_states.{last}"]


def twin_of(tool, oracles, tmp_path, name, way):
    """The folder of a checkpoint's twin, forged in one of WAYS."""
    target, recipe = WAYS[way]
    source = oracles / name
    if way == "portable":       # its padded heads rescale W_q, which bfloat16 rounds
        source = widened(source, tmp_path / "wide")
    words = () if way == "as it is" else FOR_A_SLICE
    done = tool.forge(source, recipe, tmp_path / "twin", "--to", target, *words)
    assert done.code == 0, done
    return tmp_path / "twin"


def gap(have, want):
    """The largest difference, of the largest value wanted."""
    have, want = np.asarray(have, np.float64), np.asarray(want, np.float64)
    assert have.shape == want.shape, (have.shape, want.shape)
    return float(np.abs(have - want).max() / np.abs(want).max())
