"""Fixtures of the emitted code's tests: the tool, and checkpoints with the outside judge's answers."""
import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Models are tiny and each is compiled for itself: time goes into compiling.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
sys.path.append(str(Path(__file__).parent.parent / "cli"))  # manifests.py

from oracles import made  # noqa: E402
from tool import Tool  # noqa: E402


@pytest.fixture(scope="session")
def tool():
    return Tool()


@pytest.fixture(scope="session")
def oracles(tmp_path_factory):
    """Folder with one checkpoint per name, each with expected.safetensors. TWINFORGE_ORACLES names one that is there."""
    ready = os.environ.get("TWINFORGE_ORACLES")
    return Path(ready) if ready else made(tmp_path_factory.mktemp("oracles"))
