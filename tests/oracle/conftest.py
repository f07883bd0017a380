"""Fixtures of the outside judge: checkpoints made by Hugging Face's own code, and the tool under test."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from oracles import NAMES, made  # noqa: E402,F401
from tool import Tool  # noqa: E402


@pytest.fixture(scope="session")
def tool():
    return Tool()


@pytest.fixture(scope="session")
def oracles(tmp_path_factory):
    """Folder with one checkpoint per name."""
    return made(tmp_path_factory.mktemp("oracles"))


@pytest.fixture(scope="session")
def wide(oracles, tmp_path_factory):
    """name -> the same checkpoint stored in float64, made once."""
    import judge
    out, done = tmp_path_factory.mktemp("wide"), {}

    def of(name):
        if name not in done:
            done[name] = judge.widened(oracles / name, out / name)
        return done[name]

    return of
