"""The standard's own tests: each passes, or is refused for the reason that refusals.csv gives."""
import csv

import pytest
import suite


@pytest.fixture(scope="module")
def results():
    return suite.run_archive()


@pytest.fixture(scope="module")
def facts():
    return suite.over_archive(suite.run_facts)


def test_every_test_has_a_verdict(results):
    assert set(results) == set(suite.operator_of())


def test_each_passes_or_is_expected_not_to(results):
    expected = suite.expected_refusals()
    got = {name: verdict for name, (_, verdict, _) in results.items() if verdict != "pass"}
    assert got == {name: verdict for name, (verdict, _) in expected.items()}, {
        name: results[name] for name in got if name not in expected}


def test_refusals_say_what_has_no_meaning(results):
    for name, (_, verdict, why) in results.items():
        if verdict == "refused":
            assert why.startswith("TF2007 node "), (name, why)


def test_what_differs_differs_by_rounding(results):
    """The inverse transforms: expected values of 1e-7 and less where zero is exact."""
    for name, (_, verdict, why) in results.items():
        if verdict == "differs":
            got, wanted = why.split(" is ")[1].split(", not ")
            assert abs(float(got) - float(wanted)) <= 1e-6, (name, why)


def test_the_core_passes(results):
    """Every test whose operators are all among the 102 of the core."""
    with open(suite.DATA / "onnx_backend_tests_manifest.csv", newline="") as file:
        core = [f"{row['suite']}/{row['test']}" for row in csv.DictReader(file) if row["in_core"] == "1"]
    assert len(core) > 1000
    assert [name for name in core if results[name][1] != "pass"] == []


def test_no_inferred_fact_is_wrong(facts, results):
    """Type, extents and small elements of each value of each test, without what the files declare of outputs."""
    assert set(facts) == set(results)
    assert {name: why for name, (verdict, _, why) in facts.items() if verdict != "holds"} == {}


def test_the_page_has_the_table(results, facts):
    assert suite.written_table() == suite.table(results, facts), "python tests/onnx/suite.py write"
