"""The committed digests are what ml_dtypes says today."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

import make_dtype_digests  # noqa: E402


def test_digests_are_current():
    committed = (HERE / "dtype_digests.txt").read_text().splitlines()
    assert committed == list(make_dtype_digests.lines())
