"""Emitted modules by path, and what their tests compare them with."""
import importlib.util
import json
from pathlib import Path

import numpy as np


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
