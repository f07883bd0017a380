"""Settings of adapter_config.json that say nothing of what the adapter computes are taken."""
import adapters
import pytest


def plan(tool, tiny, tmp_path, **keys):
    adapters.write(tmp_path / "a", **keys)
    recipe = tmp_path / "r.textproto"
    recipe.write_text(f'require: BOUNDED step {{ merge_lora {{ adapter: "{tmp_path}/a" }} }}')
    return tool("plan", tiny, "--recipe", recipe)


def test_every_default_of_peft_is_taken(tool, tiny, tmp_path):
    peft = pytest.importorskip("peft")
    ours = ("r", "lora_alpha", "target_modules", "peft_type", "layers_to_transform")
    keys = {key: value for key, value in peft.LoraConfig().to_dict().items() if key not in ours}
    assert len(keys) > 20
    done = plan(tool, tiny, tmp_path, **keys)
    assert done.code == 0, done


@pytest.mark.parametrize("keys", [
    {"task_type": "CAUSAL_LM", "lora_dropout": 0.1, "revision": "main", "base_model_name_or_path": "x", "peft_version": "9"},
    {"runtime_config": {"ephemeral_gpu_offload": True}, "auto_mapping": {"base_model_class": "X"}, "inference_mode": True},
    {"eva_config": {"rho": 2.0}, "init_lora_weights": "eva", "qalora_group_size": 32, "megatron_core": "megatron.core", "fan_in_fan_out": True},
    {"some_later_key": None, "another": {}, "a_third": False, "a_fourth": [], "a_fifth": 0, "a_sixth": ""},
])
def test_names_training_and_runtimes_are_taken(tool, tiny, tmp_path, keys):
    done = plan(tool, tiny, tmp_path, **keys)
    assert done.code == 0, done
