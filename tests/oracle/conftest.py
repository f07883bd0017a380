"""Fixtures of the outside judge: checkpoints made by Hugging Face's own code, and the tool under test."""
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from tool import SHARED, Tool  # noqa: E402

# Every checkpoint of the supported families that the judge's maker knows.
NAMES = """llama llama__tied_bf16 llama__biases llama__llama3 llama__yarn llama__linear llama__dynamic llama__sharded mistral
mistral__window qwen2 qwen2__window qwen3 qwen3__sharded gemma2 phi3 phi3__longrope mixtral mixtral__sharded_bf16 qwen3_moe gpt_oss
deepseek_v3 gpt2 gpt2__sharded bert""".split()


@pytest.fixture(scope="session")
def tool():
    return Tool()


@pytest.fixture(scope="session")
def oracles(tmp_path_factory):
    """Folder with one checkpoint per name."""
    maker = SHARED / "oracles" / "make_oracles.py"
    assert maker.exists(), f"the judge's scripts are not at {SHARED}; set TWINFORGE_SHARED"
    out = tmp_path_factory.mktemp("oracles")
    made = subprocess.run([sys.executable, str(maker), str(out), *NAMES], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return out


@pytest.fixture(scope="session")
def wide(oracles, tmp_path_factory):
    """name -> the same checkpoint stored in float64, made once."""
    import judge
    out, made = tmp_path_factory.mktemp("wide"), {}

    def of(name):
        if name not in made:
            made[name] = judge.widened(oracles / name, out / name)
        return made[name]

    return of
