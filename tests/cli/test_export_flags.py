"""export: flags that change nothing are refused."""


def test_shards_split_nothing_without_a_recipe(tool, tiny, tmp_path):
    done = tool("export", tiny, "--to", "stablehlo", "--shards", 3, "--out", tmp_path / "out")
    assert done.code == 2 and done.codes == ["TF1003"] and "--recipe" in done.err and not (tmp_path / "out").exists(), done
