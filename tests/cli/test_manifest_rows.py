"""A manifest that was edited and sealed anew is refuted at the row, key or block that was edited."""
import hashlib
import json
import re
import shutil

import pytest
from manifests import replace, reseal

PADDED = 'name: "padded" step { pad_heads { multiple_of_chip: SHARDS } } step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } }'


@pytest.fixture(scope="module")
def forged(tool, tiny, tmp_path_factory):
    """The sample with a tokenizer and a generation_config, and its twin with a padded vocabulary."""
    root = tmp_path_factory.mktemp("forged")
    shutil.copytree(tiny, root / "model")
    (root / "model" / "tokenizer.json").write_text("{}")
    (root / "model" / "generation_config.json").write_text('{"eos_token_id": 2}')
    done = tool.forge(root / "model", PADDED, root / "twin", "--shards", 3)
    assert done.code == 0, done
    return root


@pytest.fixture
def twin(forged, tmp_path):
    shutil.copytree(forged / "twin", tmp_path / "twin")
    return tmp_path / "twin"


def drop(field, names):
    """Leaves out the message `field` that names `names`."""
    return lambda body: re.sub(rf"^{field} {{\n(?:  .*\n)*?  [a-z]+: \"{re.escape(names)}\"\n(?:  .*\n)*?}}\n", "", body, count=1, flags=re.M)


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize("edit, check, subject, says", [
    (replace('roles: "layers.0.attn.q"', 'roles: "layers.0.attn.k"'), "structure", Q, "the roles"),
    (replace('  roles: "layers.0.attn.q"\n', ''), "structure", Q, "the roles nothing, it holds"),
    (replace('roles: "layers.0.attn.q"\n', 'roles: "layers.0.attn.q"\n  roles: "norm"\n'), "structure", Q, "layers.0.attn.q, norm"),
    (replace(f'consumers: "{Q}"', 'consumers: "model.norm.weight"'), "structure", Q, "it went to"),
    (replace(f'  consumers: "{Q}"\n', ''), "structure", Q, "it went to nothing"),
    (replace(f'  source: "{Q}"\n  fate: "moved"\n', f'  source: "{Q}"\n  fate: "moved"\n  reason: "lost"\n'), "structure", Q, "reason"),
    (drop("ledger", Q), "structure", Q, "calls it nothing"),
    (lambda body: body.replace("ledger {", 'ledger {\n  source: "phantom"\n  fate: "unused"\n}\nledger {', 1), "structure", "phantom", "no such tensor"),
    (lambda body: body.replace("ledger {", f'ledger {{\n  source: "{Q}"\n  fate: "moved"\n}}\nledger {{', 1), "structure", Q, "two rows"),
    (lambda body: re.sub(rf'(name: "{Q}"\n  file: "model.safetensors"\n  xxh3: ")........', r"\g<1>00000000", body), "files", Q, "xxh3"),
    (replace('key: "format"\n    value: "pt"', 'key: "format"\n    value: "tf"'), "headers", "model.safetensors", "metadata"),
    (replace('companions: "tokenizer.json"\n', ''), "files", "tokenizer.json", "no tensor or companion"),
    (lambda body: re.sub(rf'(name: "{Q}"\n  file: )"model.safetensors"', r'\g<1>"README.md"', body), "files", "README.md", "rows of tensors place them there"),
])
def test_a_false_row_is_named(tool, forged, twin, edit, check, subject, says):
    reseal(twin, edit)
    done = tool("prove", forged / "model", twin, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED", done
    found = [row["detail"] for row in done.json["failures"] if (row["check"], row["subject"]) == (check, subject)]
    assert any(says in detail for detail in found), done.json["failures"]


def test_the_honest_one_is_proven(tool, forged, twin):
    said = tool.json("prove", forged / "model", twin)
    assert said["verdict"] == "PROVEN" and said["failures"] == [], said


def rewrite(twin, file, edit):
    """Edits a JSON file of the twin and its row in the manifest."""
    path = twin / file
    old, value = path.read_bytes(), json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value, indent=2) + "\n")
    sha = [hashlib.sha256(text).hexdigest() for text in (old, path.read_bytes())]

    def row(body):
        at = body.index(f'  name: "{file}"\n  bytes: {len(old)}\n')
        tail = body[at:].replace(f"bytes: {len(old)}", f"bytes: {path.stat().st_size}", 1).replace(sha[0], sha[1], 1)
        return body[:at] + tail
    reseal(twin, row)


@pytest.mark.parametrize("file, edit, says", [
    ("config.json", lambda c: c.update(rms_norm_eps=0.5), '"rms_norm_eps" is 0.5, and should be 0.001'),
    ("config.json", lambda c: c.update(num_attention_heads="six\x1b[2J"), '"num_attention_heads" is "six\\u001b[2J", and should be 6'),
    ("config.json", lambda c: c.update(mine=[1]), '"mine" is "[1]", and should be absent'),
    ("config.json", lambda c: (c.pop("vocab_size"), c.update(hidden_size=1)), "1 more differs"),
    ("config.json", lambda c: c.update(vocab_size=c.pop("vocab_size"), rms_norm_eps=c.pop("rms_norm_eps")), "spelled or ordered otherwise"),
    ("generation_config.json", lambda c: c["suppress_tokens"].pop(), "suppress_tokens["),
    ("generation_config.json", lambda c: c.update(eos_token_id=3), '"eos_token_id" is 3, and should be 2'),
])
def test_an_edited_config_names_its_key(tool, forged, twin, file, edit, says):
    rewrite(twin, file, edit)
    done = tool("prove", forged / "model", twin, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED", done
    found = [row["detail"] for row in done.json["failures"] if (row["check"], row["subject"]) == ("structure", file)]
    assert len(found) == 1 and says in found[0], done.json["failures"]
    assert "\x1b" not in tool("prove", forged / "model", twin).out


def test_a_card_says_what_the_manifest_says(tool, forged, twin):
    card = twin / "README.md"
    old = card.read_bytes()
    card.write_bytes(old.replace(b"Fidelity: MOVED", b"Fidelity: MAGIC"))
    reseal(twin, replace(hashlib.sha256(old).hexdigest(), hashlib.sha256(card.read_bytes()).hexdigest()))
    done = tool("prove", forged / "model", twin, "--format", "json")
    assert done.code == 1, done
    assert [(row["check"], row["subject"]) for row in done.json["failures"]] == [("structure", "README.md")], done.json["failures"]
    assert "MAGIC" in done.json["failures"][0]["detail"] and "line " in done.json["failures"][0]["detail"]


def test_an_edited_text_of_the_source_names_its_key(tool, forged, twin):
    reseal(twin, replace('\\"hidden_size\\": 48', '\\"hidden_size\\": 49'))
    done = tool("prove", forged / "model", twin, "--format", "json")
    assert done.code == 1, done
    assert any('"hidden_size" is 49, and should be 48' in row["detail"] for row in done.json["failures"]), done.json["failures"]


def in_lines(field, pattern, new):
    return lambda body: "\n".join(re.sub(pattern, new, line) if line.startswith(f"{field}:") else line for line in body.split("\n"))


@pytest.mark.parametrize("pattern, new, layer, role, says", [
    (r"(layers\.1\.norm_mid = .*eps: )[0-9.e-]+", r"\g<1>0.01", "layers.1", "layers.1.norm_mid", "eps: 0.01"),
    (r"(layers\.1\.attn = .*\{scale: )[0-9.]+", r"\g<1>0.5", "layers.1", "layers.1.attn", "scale: 0.5"),
    (r"(@layers\.0\.mlp\.up: .*source\(\\\"model\.layers\.0\.mlp\.)up_proj", r"\g<1>gate_proj", "layers.0", "layers.0.mlp.up", "gate_proj"),
    (r"layers\.1\.add_attn", "layers.1.sum_attn", "layers.1", "layers.1.sum_attn", "no such block"),
])
def test_an_edited_source_graph_names_its_first_block(tool, forged, twin, pattern, new, layer, role, says):
    reseal(twin, in_lines("source_graph", pattern, new))
    done = tool("prove", forged / "model", twin, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED", done
    fault = done.json["fault"]
    assert (fault["layer"], fault["role"]) == (layer, role) and says in fault["what"] and "source_graph" in fault["what"], fault


@pytest.mark.parametrize("scale", ["0.5", "0.25000001", "1e-300"])
def test_a_changed_softmax_scale_is_refuted(tool, forged, twin, scale):
    """In the graph alone, and in the graph of both sides: the source itself is what counts."""
    edit = in_lines("graph", r"(layers\.1\.attn = .*\{scale: )[0-9.]+", rf"\g<1>{scale}")
    reseal(twin, edit)
    done = tool("prove", forged / "model", twin, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED" and done.json["structure"]["verdict"] == "REFUTED", done
    assert done.json["fault"]["layer"] == "layers.1" and "attn" in done.json["fault"]["role"], done.json["fault"]
    reseal(twin, in_lines("source_graph", r"(layers\.1\.attn = .*\{scale: )[0-9.]+", rf"\g<1>{scale}"))
    done = tool("prove", forged / "model", twin, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED", done
    failed = {(row["check"], row["subject"]) for row in done.json["failures"]}
    assert {("recipe", "graph"), ("recipe", "source_graph")} <= failed, failed
