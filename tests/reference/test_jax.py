"""Law: the emitted JAX module gives the outside judge's logits, for every family and every library recipe: a whole
sequence at once, a prompt and then token by token through the cache, prompts of several lengths in one batch."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from emitted import judged, module_at, stored, widened
from oracles import NAMES

TOLERANCE = 2e-5        # of the largest logit, everything in float32
ENCODERS = {"bert"}

WAYS = {
    "as it is": ("hf", 'name: "none" step { pad_vocab { multiple: 1 } }'),
    "portable": ("hf", "tpu-exact-portable"),
    "native": ("twin", "tpu-exact-native"),
    "stacked": ("twin", 'name: "stacked" step { use: "tpu-exact-native" } step { group_experts { size: 2 } } step { stack_layers { } }'),
}
FOR_A_SLICE = ("--shards", "2", "--kernel", "paged")


def forged(tool, oracles, tmp_path, name, way):
    """The twin's module and its parameters in float32."""
    target, recipe = WAYS[way]
    source = oracles / name
    if way == "portable":       # its padded heads rescale W_q, which bfloat16 rounds
        source = widened(source, tmp_path / "wide")
    words = () if way == "as it is" else FOR_A_SLICE
    done = tool.forge(source, recipe, tmp_path / "twin", "--to", target, *words)
    assert done.code == 0, done
    module = module_at(tmp_path / "twin" / "reference" / "model.py")
    return module, module.load(tmp_path / "twin", dtype=jnp.float32)


def gap(have, want):
    assert have.shape == want.shape, (have.shape, want.shape)
    return float(np.abs(np.asarray(have, np.float64) - want).max() / np.abs(want).max())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_judges(tool, oracles, tmp_path, name, way):
    module, params = forged(tool, oracles, tmp_path, name, way)
    ids, want = judged(oracles / name)
    assert gap(module.logits(params, ids), want) <= TOLERANCE
    if name in ENCODERS:
        lengths = np.array([ids.shape[1], ids.shape[1] - 4])
        assert gap(module.logits(params, ids, lengths)[0], want[0]) <= TOLERANCE
        padded = ids.copy()
        padded[1, -4:] = 0
        again = module.logits(params, padded, lengths)
        alone = module.logits(params, ids[1:, :-4])
        assert gap(again[1, :-4], np.asarray(alone[0], np.float64)) <= TOLERANCE
        return
    decode(module, params, ids, want, lengths=[5, 3] if ids.shape[0] == 2 else [5] * ids.shape[0])


def decode(module, params, ids, want, lengths):
    """A ragged prompt, then eight tokens through the cache."""
    lengths = np.array(lengths, np.int32)
    rows = np.arange(len(lengths))
    prompt = ids[:, :lengths.max()].copy()
    prompt[np.arange(prompt.shape[1]) >= lengths[:, None]] = 1     # whatever stands behind a prompt
    cache = module.init_cache(len(rows), ids.shape[1], jnp.float32)
    row, cache = module.prefill(params, cache, prompt, lengths)
    assert gap(row, want[rows, lengths - 1]) <= TOLERANCE
    for step in range(8):
        at = lengths + step
        row, cache = module.decode_step(params, cache, ids[rows, at], at)
        assert gap(row, want[rows, at]) <= TOLERANCE, step
