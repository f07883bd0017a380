import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from tool import ROOT, Tool  # noqa: E402


@pytest.fixture(scope="session")
def tool():
    return Tool()


@pytest.fixture(scope="session")
def tiny():
    return ROOT / "samples" / "tiny-llama"


@pytest.fixture(scope="session")
def configs():
    return ROOT / "samples" / "configs"
