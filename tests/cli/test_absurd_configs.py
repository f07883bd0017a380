"""A config alone does not choose how much time or memory is taken: absurd sizes end early, with key and hint."""
import json
import resource

import pytest

SIZES = {
    "llama-3.1-8b": ["num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"],
    "qwen3-30b-a3b": ["num_experts", "moe_intermediate_size", "num_hidden_layers", "head_dim"],
    "gpt-oss-120b": ["num_local_experts", "intermediate_size", "num_hidden_layers"],
}
VERBS = [["inspect"], ["plan", "--recipe", "tpu-exact-native", "--shards", "8"], ["plan", "--recipe", "tpu-exact-portable"], ["score", "--chip", "v6e", "--recipe", "tpu-exact-native"]]
FEW = {"preexec_fn": lambda: (resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)), resource.setrlimit(resource.RLIMIT_CPU, (2, 2)))}


def config_of(configs, tmp_path, name, **keys):
    config = json.loads((configs / name / "config.json").read_text())
    config.update(keys)
    config.pop("layer_types", None)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("name, key", [(name, key) for name, keys in SIZES.items() for key in keys])
def test_absurd_sizes_end_early(tool, configs, tmp_path, name, key):
    for size in (2**33, 2**40) if key != "num_hidden_layers" else (100_000, 2**33):
        path = config_of(configs, tmp_path, name, **{key: size})
        for words in VERBS:
            done = tool(words[0], "--from-config", path, *words[1:], **FEW)
            assert done.code == 2 and done.codes in (["TF1406"], ["TF1414"]) and str(path) in done.err and "hint: " in done.err, done
            assert f'"{key}" is {size} where a size from 1 to' in done.err, done


def test_learned_positions_are_bounded_too(tool, tmp_path):
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 48, "n_head": 4, "n_inner": 56, "n_layer": 2, "vocab_size": 97, "dtype": "float32"}
    for positions, code in ((2**28, 0), (2**28 + 1, 2)):
        (tmp_path / "config.json").write_text(json.dumps({**config, "n_positions": positions}))
        done = tool("inspect", "--from-config", tmp_path / "config.json", **FEW)
        assert done.code == code and (code == 0 or done.codes == ["TF1406"] and f'"n_positions" is {positions}' in done.err), done


def test_ten_million_experts(tool, configs, tmp_path):
    path = config_of(configs, tmp_path, "qwen3-30b-a3b", num_experts=10**7)
    done = tool("inspect", "--from-config", path, **FEW)
    assert done.code == 2 and '"num_experts" is 10000000' in done.err, done
    path = config_of(configs, tmp_path, "qwen3-30b-a3b", num_experts=60000, num_hidden_layers=9000)
    done = tool("inspect", "--from-config", path, **FEW)
    assert done.code == 2 and done.codes == ["TF1414"] and "9000 layers of 60000 experts" in done.err, done


def test_with_tensors_beside_it(tool, tiny, tmp_path):
    """A config that calls for more than the checkpoint has is refused without looking up each name."""
    import shutil
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] = 10000
    (folder / "config.json").write_text(json.dumps(config))
    done = tool("inspect", folder, **FEW)
    assert done.code == 4 and done.codes == ["TF1409"], done


def test_the_largest_that_is_counted(tool, configs, tmp_path):
    """A thousand layers of 4,096 experts: twelve million tensors, counted without a list of them."""
    path = config_of(configs, tmp_path, "qwen3-30b-a3b", num_hidden_layers=1000, num_experts=4096)
    said = tool("inspect", "--from-config", path, "--format", "json", **FEW)
    assert said.code == 0, said
    hidden, ffn, stored = 2048, 768, said.json["stored"]
    assert said.json["parameters"]["expert"] == 1000 * 4096 * 3 * hidden * ffn
    assert stored["tensors"] == 1000 * (3 * 4096 + 9) + 3 and stored["bytes"] == 2 * said.json["parameters"]["total"]
    done = tool("score", "--from-config", path, "--chip", "v6e", "--shards", 8, "--recipe", "tpu-exact-native", **FEW)
    assert done.code in (0, 3) and "TF7" not in done.err, done
    done = tool("plan", "--from-config", path, "--recipe", "tpu-exact-native", **FEW)
    assert done.code == 2 and done.codes == ["TF1414"] and "too many to plan" in done.err, done


@pytest.mark.parametrize("key, most, step", [
    ("hidden_size", 2**20, "pad_hidden { form: NATIVE multiple: %d }"),
    ("intermediate_size", 2**20, "pad_ffn { multiple: %d }"),
    ("num_attention_heads", 2**16, "pad_heads { multiple: %d }"),
    ("head_dim", 2**16, "pad_head_dim { form: NATIVE multiple: %d }"),
    ("vocab_size", 2**24, "pad_vocab { multiple: %d mask: REFERENCE }"),
])
def test_padding_ends_where_configs_end(tool, configs, tmp_path, key, most, step):
    """What a step writes can be read again: the largest size is padded to and read, the next one neither."""
    def config(size):
        return config_of(configs, tmp_path, "llama-3.1-8b", **{"num_key_value_heads": 1, "head_dim": 128, key: size})

    def plan(multiple):
        recipe = tmp_path / "r.textproto"
        recipe.write_text("step { " + step % multiple + " }")
        said = tool("plan", "--from-config", config(most - 2), "--recipe", recipe, "--to", "twin", "--format", "json", **FEW)
        assert said.code == 0, said
        return said.json

    half = min(most, 2**20) // 2
    said = plan(2 * half)
    assert said["sites"] and not said["refused"], said
    assert tool("inspect", "--from-config", config(most), **FEW).code == 0
    said = plan(half + 1)
    assert not said["sites"] and f"no model is read with more than {most}" in said["refused"][0]["reason"], said
    assert tool("inspect", "--from-config", config(most + 1), **FEW).codes == ["TF1406"]


@pytest.mark.parametrize("keys, says", [
    ({"rms_norm_eps": 1e39}, '"rms_norm_eps" is 1e+39 where a number from -3.4e38 to 3.4e38'),
    ({"hidden_size": 10**16}, "a whole number of at most 2^53"),
    ({"hidden_size": 4096.5}, "where a whole number is needed"),
    ({"hidden_size": "wide"}, "where a number is needed"),
    ({"num_hidden_layers": -1}, "where a size from 1 to 10000 is needed"),
])
def test_out_of_range_is_said_as_such(tool, configs, tmp_path, keys, says):
    done = tool("inspect", "--from-config", config_of(configs, tmp_path, "llama-3.1-8b", **keys))
    assert done.code == 2 and done.codes == ["TF1406"] and says in done.err, done


def test_a_key_that_is_absent_is_named(tool, configs, tmp_path):
    """Eight experts for a token is the class's default: with four experts the sentence names the key all the same."""
    path = config_of(configs, tmp_path, "qwen3-30b-a3b", num_experts=4)
    config = json.loads(path.read_text())
    del config["num_experts_per_tok"]
    config[""] = 5
    path.write_text(json.dumps(config))
    done = tool("inspect", "--from-config", path)
    assert done.code == 2 and '"num_experts_per_tok": a token cannot choose 8 of 4' in done.err and '""' not in done.err, done


@pytest.mark.parametrize("text, code", [("[]", "TF1416"), ("null", "TF1416"), ("7", "TF1416"), ('{"a": ', "TF1206"), ("", "TF1206")])
def test_a_config_that_is_none_is_corrupt_and_named_by_its_path(tool, tiny, tmp_path, text, code):
    import shutil
    import adapters
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "config.json").write_text(text)
    for words in (["inspect", folder], ["inspect", "--from-config", folder / "config.json"], ["plan", folder, "--recipe", "tpu-exact-native"]):
        done = tool(*words)
        assert done.code == 4 and done.codes == [code] and str(folder / "config.json") in done.err, done
    adapters.write(tmp_path / "a")
    (tmp_path / "a" / "adapter_config.json").write_text(text)
    recipe = tmp_path / "r.textproto"
    recipe.write_text(f'require: BOUNDED step {{ merge_lora {{ adapter: "{tmp_path}/a" }} }}')
    done = tool("plan", tiny, "--recipe", recipe)
    assert done.code == 4 and done.codes == [code] and f"r.textproto:1:18: {tmp_path}/a/adapter_config.json" in done.err, done
