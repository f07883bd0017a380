"""The decode step of a twin's emitted JAX code, for the tests: in a process of its own, since JAX keeps the compiler loaded.

    emitted_step.py TWINFORGE FOLDER     writes FOLDER/<what>.mlir, FOLDER/config.json; prints the cycles of each by JAX's own compile
"""
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import attainability_jax as bench  # noqa: E402  (sets the library's environment)

# One layer of Llama-3.2-1B at full width.
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 1, "num_attention_heads": 32,
          "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": bench.VOCAB, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
          "hidden_act": "silu", "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def main(tool, folder):
    bench.checkpoint(folder / "source", CONFIG)
    subprocess.run([tool, "forge", folder / "source", "--recipe", "tpu-exact-native", "--to", "twin", "--out", folder / "twin", "--progress", "none"], check=True,
                   stdout=subprocess.DEVNULL)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    layer = bench.Layer(folder / "twin", bench.compile_layers.Compiler("v6e"))
    said = {}
    for what, lowered in (("layer", layer.lowered("off")), ("step", layer.step())):
        (folder / f"{what}.mlir").write_text(lowered.as_text())
        said[what] = bench.cycles(lowered)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
