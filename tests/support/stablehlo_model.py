"""An exported model made ready to run: its modules, and each argument's value from the model's own files."""
import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import safe_open

import weight_programs


def stored_tensors(folder):
    tensors = {}
    for file in sorted(Path(folder).glob("*.safetensors")):
        if file.name == "expected.safetensors":
            continue
        with safe_open(file, "np") as opened:
            for name in opened.keys():
                tensors[name] = opened.get_tensor(name)
    return tensors


DTYPES = dict(weight_programs.DTYPES, bf16=ml_dtypes.bfloat16)


class Exported:
    """One module and its manifest. `make` turns its text into something with `run`."""

    def __init__(self, folder, phase, model, make):
        (manifest,) = Path(folder).glob(f"*.{phase}.*.arguments.json")
        self.said = json.loads(manifest.read_text())
        self.text = Path(str(manifest).replace(".arguments.json", ".mlir")).read_text()
        self.runs = make(self.text)
        tensors = stored_tensors(model)
        self.weights = {}
        for argument in self.said["arguments"]:
            if argument["kind"] == "weight":
                value = tensors[argument["tensor"]] if "tensor" in argument else weight_programs.computed(argument["program"], tensors)
                assert list(value.shape) == argument["shape"] and value.dtype == DTYPES[argument["dtype"]], argument
                self.weights[argument["name"]] = value

    def __call__(self, inputs, cache):
        """Logits and the caches after the call, by name."""
        arrays = []
        for argument in self.said["arguments"]:
            if argument["kind"] == "weight":
                arrays.append(self.weights[argument["name"]])
            elif argument["kind"] == "cache":
                arrays.append(cache[argument["name"]])
            else:
                arrays.append(np.broadcast_to(np.asarray(inputs[argument["name"]], DTYPES[argument["dtype"]]), argument["shape"]))
        results = self.runs.run(*arrays)
        named = {said["name"]: value for said, value in zip(self.said["results"], results, strict=True)}
        return named.pop("logits"), named
