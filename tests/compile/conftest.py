import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from tool import ROOT, Tool  # noqa: E402


@pytest.fixture(scope="session")
def library():
    """The compiler's library of the environment that runs the tests (tests/requirements.txt)."""
    import libtpu
    return Path(libtpu.__file__).parent / "libtpu.so"


@pytest.fixture(scope="session")
def tool(library):
    """With the library where it is looked for."""
    os.environ["TWINFORGE_LIBTPU"] = str(library)
    return Tool()


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Folder of programs that JAX lowered, and what JAX's own compile says of each."""
    folder = tmp_path_factory.mktemp("programs")
    subprocess.run([sys.executable, ROOT / "tests" / "compile" / "through_jax.py", folder], check=True, timeout=600)
    return folder, json.loads((folder / "answers.json").read_text())
