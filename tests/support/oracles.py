"""The outside judge's checkpoints: made by Hugging Face's own code, with its answers."""
import subprocess
import sys

from tool import SHARED

# Every checkpoint of the supported families that the judge's maker knows.
NAMES = """llama llama__tied_bf16 llama__biases llama__llama3 llama__yarn llama__linear llama__dynamic llama__sharded mistral
mistral__window qwen2 qwen2__window qwen3 qwen3__sharded gemma2 phi3 phi3__longrope mixtral mixtral__sharded_bf16 qwen3_moe gpt_oss
deepseek_v3 gpt2 gpt2__sharded bert""".split()


def made(out):
    """`out`, with one checkpoint per name in it."""
    maker = SHARED / "oracles" / "make_oracles.py"
    assert maker.exists(), f"the judge's scripts are not at {SHARED}; set TWINFORGE_SHARED"
    done = subprocess.run([sys.executable, str(maker), str(out), *NAMES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out
