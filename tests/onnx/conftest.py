import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / "bench"))

from tool import Tool  # noqa: E402


@pytest.fixture(scope="session")
def tool():
    return Tool()
