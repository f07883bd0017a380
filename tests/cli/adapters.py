"""A small LoRA adapter for samples/tiny-llama, as peft writes one."""
import json
import struct

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"


def write(folder, value=0.01, last=None, **keys):
    """Rank 4 on q of layer 0 alone, `last` its last element; `keys` go into adapter_config.json."""
    a, b = [4, 48], [80, 4]
    header = json.dumps({f"{MODULE}.lora_A.weight": {"dtype": "F32", "shape": a, "data_offsets": [0, 768]},
                         f"{MODULE}.lora_B.weight": {"dtype": "F32", "shape": b, "data_offsets": [768, 2048]}}).encode()
    header += b" " * (-len(header) % 8)
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<512f", *([value] * 511), value if last is None else last))
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "layers_to_transform": [0], **keys}))
