"""Real models: outputs against golden data of onnxruntime, and what cannot be read says why."""
import csv
import shutil

import pytest
from tool import SHARED

pytest.importorskip("onnx")
from models import close, read_data  # noqa: E402

MODELS = SHARED / "data" / "onnx_models"


def goldens():
    rows = {}
    with open(MODELS / "goldens.csv", newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["model"], []).append(row)
    return rows


def manifest():
    with open(MODELS / "manifest.csv", newline="") as file:
        return {row["model"]: MODELS / row["file"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", sorted(goldens()))
def test_golden_outputs(tool, tmp_path, name):
    rows, data = goldens()[name], tmp_path / "in"
    data.mkdir()
    for row in rows:
        if row["role"] == "input":
            shutil.copy(MODELS / name / "golden" / row["file"], data)
    done = tool("eval", manifest()[name], "--inputs", data, "--out", tmp_path / "out")
    assert done.code == 0, done
    for row in rows:
        if row["role"] == "output":
            wanted = read_data(MODELS / name / "golden" / row["file"])
            got = read_data(tmp_path / "out" / row["file"])
            if got.ndim == 0:  # the golden data were written with an axis more
                wanted = wanted.reshape(())
            # float32's own order of sums, float16's roundings where the model is in it
            close(got, wanted, 2e-2 if "float16" in row["dtype"] else 1e-4)


@pytest.mark.parametrize("name", ["light_densenet121", "light_resnet50", "light_shufflenet", "light_squeezenet"])
def test_light_models(tool, tmp_path, name):
    """As the standard's runner makes their input: numbers from 0 up, scaled to [0, 1)."""
    import numpy as np
    from onnx import numpy_helper
    path = manifest()[name]
    wanted = read_data(next(path.parent.glob("*_output_0.pb")))
    shape = (1, 3, 224, 224)
    x = (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    done = tool("eval", path, "--inputs", tmp_path / "in", "--out", tmp_path / "out")
    assert done.code == 0, done
    close(read_data(tmp_path / "out" / "output_0.pb"), wanted, 1e-3)


def test_all_are_inspected_or_refused_by_name(tool):
    refused = {"mobilenetv2_noweights": "TF2004", "swiglu_function_bf16": "TF2003"}
    for name, path in manifest().items():
        done = tool("inspect", path)
        assert done.codes == ([refused[name]] if name in refused else []), done
