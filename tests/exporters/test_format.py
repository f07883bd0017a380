"""What we write is, byte for byte, what the format's own library writes, but for the order of metadata (theirs is random)."""
import json
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from tool import ROOT, Tool  # noqa: E402

TINY = ROOT / "samples" / "tiny-llama"
RECIPE = 'name: "r" require: BOUNDED step { pad_vocab { multiple: 64 mask: SUPPRESS_TOKENS } } step { cast_weights { to: "f32" } where { path: "layers.*norm.*" } }'


def split(data):
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n], object_pairs_hook=lambda pairs: pairs)
    return n, header, data[8 + n :]


def test_the_library_writes_the_same_file(tmp_path):
    done = Tool().forge(TINY, RECIPE, tmp_path / "twin")
    assert done.code == 0, done
    ours = (tmp_path / "twin" / "model.safetensors").read_bytes()
    tensors = safetensors.torch.load(ours)
    assert {t.dtype for t in tensors.values()} == {torch.bfloat16, torch.float32}
    n, header, body = split(ours)
    metadata = dict(dict(header)["__metadata__"])
    m, theirs, their_body = split(safetensors.torch.save(tensors, metadata))
    assert n == m and header[1:] == theirs[1:] and body == their_body
