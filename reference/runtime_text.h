// Parts of an emitted JAX module that are the same for every model.
#ifndef TWINFORGE_REFERENCE_RUNTIME_TEXT_H_
#define TWINFORGE_REFERENCE_RUNTIME_TEXT_H_

namespace twinforge {

inline constexpr char kJaxHeader[] =
    R"py("""$MODEL in JAX. Written by twinforge from the graph of the twin in whose folder this file lies.

    python reference/model.py --prompt-ids 1,2,3 --steps 16

    params = load()                                  # or load(directory, dtype=jnp.float32)
    logits(params, input_ids)                        # [batch, seq, vocab]
    generate(params, input_ids, steps=16)            # [batch, steps]

Sequences of several lengths are padded behind; what stands there changes no token before it.
"""
import argparse
import functools
$IMPORTLIBimport json
$SYSfrom dataclasses import dataclass$REPLACE
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
$SHARDING
DIRECTORY = Path(__file__).resolve().parent.parent
$KERNELS)py";

// How a module finds the kernels beside it.
inline constexpr char kJaxKernelModule[] = R"py(

def kernel_module(name):
    """A module of kernels/ beside this file, whoever imports this one. No bytecode is left there."""
    folder = Path(__file__).resolve().with_name("kernels")
    package = f"kernels_{hash(folder):x}"
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        if package not in sys.modules:
            spec = importlib.util.spec_from_file_location(package, folder / "__init__.py")
            sys.modules[package] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[package])
        return importlib.import_module(f"{package}.{name}")
    finally:
        sys.dont_write_bytecode = writes


)py";

inline constexpr char kJaxUseKernels[] = R"py(

def use_kernels(how):
    """From now on: "auto", "off", "interpret", or the TPU generation to compile for, "v5e" say."""
    global CONFIG
    CONFIG = replace(CONFIG, kernels=how)
    for compiled in (prefill, decode_step, all_logits):
        compiled.clear_cache()
)py";

inline constexpr char kJaxKernelFlag[] =
    R"py(    parser.add_argument("--kernels", default="auto", choices=("auto", "off", "interpret"))
)py";

inline constexpr char kJaxEncoderHeader[] =
    R"py("""$MODEL in JAX. Written by twinforge from the graph of the twin in whose folder this file lies.

    python reference/model.py --prompt-ids 1,2,3

    params = load()                                  # or load(directory, dtype=jnp.float32)
    $RESULT(params, input_ids)$PAD                 # [batch, seq, $WIDTH]
    $RESULT(params, input_ids, lengths)$PAD        # of sequences that are padded behind

Every token sees the whole sequence, so there is nothing to generate.
"""
import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
$SHARDING
DIRECTORY = Path(__file__).resolve().parent.parent
)py";

inline constexpr char kJaxReader[] = R"py(FILE_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}


class Reader:
    """Stored tensors by name. The safetensors files are mapped into memory: what is not used is never read."""

    def __init__(self, directory):
        self.tensors = {}
        for path in sorted(Path(directory).glob("model*.safetensors")):
            with open(path, "rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            data = np.memmap(path, np.uint8, "r", 8 + size)
            self.tensors |= {name: (data, entry) for name, entry in header.items()}

    def __call__(self, name):
        data, entry = self.tensors[name]
        begin, end = entry["data_offsets"]
        return data[begin:end].view(FILE_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def stacked(tree, layers):
    return jax.tree.map(lambda read: lambda: np.stack([read(i) for i in layers]), tree)


def alone(tree, layer):
    return jax.tree.map(lambda read: lambda: read(layer), tree)


)py";

// The same where weights are packed: what is read may be several arrays.
inline constexpr char kJaxPacked[] = R"py(def stack_of(layers):
    return jax.tree.map(lambda *parts: np.stack(parts), *layers)


def packed(weight, axes, shape, pattern):
    """A weight of which few are kept, [in, out], as its kernel reads it; as it lies where plain JAX computes."""
    if kernel_options() is None:
        return weight
    return nm_pack.pack(weight.transpose(axes).reshape(shape), nm_pack.Pattern(*pattern))


)py";

inline constexpr char kJaxPackedLoad[] = R"py(def load(directory=DIRECTORY, dtype=None):
    """The parameters of the twin in `directory`, as they are stored or in `dtype`, read one after another.

    Where kernels are used, weights of which few are kept are packed on the way.
    """

    def place(value):
        counts = jnp.issubdtype(value.dtype, jnp.integer)  # which members of a group are kept
        return jnp.asarray(value, dtype=None if dtype is None or counts else jnp.dtype(dtype))

    return jax.tree.map(lambda read: jax.tree.map(place, read()), stored(Reader(directory)))
)py";

inline constexpr char kJaxLoad[] = R"py(def load(directory=DIRECTORY, dtype=None):
    """The parameters of the twin in `directory`, as they are stored or in `dtype`, read one after another."""

    def place(read):
        return jnp.asarray(read(), dtype=None if dtype is None else jnp.dtype(dtype))

    return jax.tree.map(place, stored(Reader(directory)))
)py";

inline constexpr char kJaxShardedLoad[] = R"py(def load(directory=DIRECTORY, dtype=None, mesh=None):
    """The parameters of the twin in `directory`, as they are stored or in `dtype`, read one after another.

    With a mesh, devices along its axis "model" hold the parts that partitions() says, and XLA derives the rest.
    """

    def place(read, partition):
        value = read()
        value = value if dtype is None else value.astype(jnp.dtype(dtype))
        return jnp.asarray(value) if mesh is None else jax.device_put(value, NamedSharding(mesh, partition))

    return jax.tree.map(place, stored(Reader(directory)), partitions())
)py";

inline constexpr char kJaxDecoder[] = R"py(

def init_cache(batch, length, dtype):
    """Room for what layers remember of `length` tokens of each sequence."""
$CACHE

@functools.partial(jax.jit, donate_argnames="cache")
def prefill(params, cache, input_ids, lengths):
    """Logits [batch, vocab] after the last token of each prompt, and the cache filled.

    Prompts [batch, seq] have `lengths` tokens each and stand at the beginning of their rows.
    """
    positions = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
    x, cache = trunk(params, cache, input_ids, positions)
    last = jnp.take_along_axis(x, lengths[:, None, None] - 1, axis=1)
    return head(params, last)[:, 0], cache


@functools.partial(jax.jit, donate_argnames="cache")
def decode_step(params, cache, tokens, positions):
    """Logits [batch, vocab] after one more token of each sequence, at its position, and the cache with it."""
    x, cache = trunk(params, cache, tokens[:, None], positions[:, None])
    return head(params, x)[:, 0], cache


$CHECKED

@jax.jit
def all_logits(params, input_ids):
    """What logits() gives, of tokens that were checked."""
    cache = init_cache(*input_ids.shape, $TABLE.dtype)
    positions = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
    x, _ = trunk(params, cache, input_ids, positions)
    return head(params, x)


def logits(params, input_ids):
    """Logits [batch, seq, vocab] after each token of input_ids [batch, seq]."""
    return all_logits(params, checked(input_ids))


def generate(params, input_ids, steps, lengths=None, temperature=0.0, key=None):
    """`steps` tokens after each prompt, [batch, steps]: the likeliest, or drawn with `key` where temperature > 0."""
    input_ids = checked(input_ids, steps)
    batch, seq = input_ids.shape
    length = seq + steps
    lengths = jnp.full(batch, seq, jnp.int32) if lengths is None else jnp.asarray(lengths, jnp.int32)
    keys = jax.random.split(jax.random.key(0) if key is None else key, steps)
    said = [input_ids[:, :0]]
    row, cache = prefill(params, init_cache(batch, length, $TABLE.dtype), input_ids, lengths)
    for step in range(steps):
        drawn = jnp.argmax(row, axis=-1) if temperature == 0 else jax.random.categorical(keys[step], row / temperature)
        said.append(drawn[:, None].astype(jnp.int32))
        if step + 1 < steps:
            row, cache = decode_step(params, cache, said[-1][:, 0], lengths + step)
    return jnp.concatenate(said, axis=1)
$USE_KERNELS

def tokenizer(directory):
    """The twin's own tokenizer, where the file lies there and the package that reads it is installed."""
    path = Path(directory) / "tokenizer.json"
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    return Tokenizer.from_file(str(path)) if path.exists() else None


def main():
    parser = argparse.ArgumentParser(description="says what the model goes on with")
    parser.add_argument("--prompt", help="text, where the twin has a tokenizer")
    parser.add_argument("--prompt-ids", default="1", help="tokens, by commas")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", help="float32, bfloat16; as stored where it is left out")
$KERNEL_FLAG    flags = parser.parse_args()
$SET_KERNELS    words = tokenizer(DIRECTORY)
    if flags.prompt is not None and words is None:
        parser.error("--prompt needs tokenizer.json in the twin's folder and the package tokenizers; or --prompt-ids")
    prompt = words.encode(flags.prompt).ids if flags.prompt else [int(word) for word in flags.prompt_ids.split(",")]
    params = load(DIRECTORY, dtype=flags.dtype)
    key = jax.random.key(flags.seed)
    said = generate(params, [prompt], flags.steps, temperature=flags.temperature, key=key)[0].tolist()
    print("tokens:", *said)
    if words is not None:
        print("text:", words.decode(prompt + said))


if __name__ == "__main__":
    main()
)py";

// Tokens that a caller gives, before anything is computed of them (checked_tokens.h).
inline constexpr char kJaxChecked[] = R"py(def checked(input_ids, further=0):
    """Tokens [batch, seq], each a word that has a place, and so have as many `further` ones.

    XLA would read some other row for one that is not there. Within a jit, where no value is known, nothing is checked.
    """
    if not isinstance(input_ids, jax.core.Tracer):
        input_ids = np.asarray(input_ids)
        if input_ids.size and not 0 <= input_ids.min() <= input_ids.max() < $WORDS:
            span = f"{input_ids.min()} to {input_ids.max()}"
            raise ValueError(f"tokens from {span}, and the model has {$WORDS} words")
$LIMIT    return jnp.asarray(input_ids, jnp.int32)
)py";

inline constexpr char kJaxEncoder[] = R"py(

$CHECKED

@jax.jit
def all_$RESULT(params, input_ids, lengths):
    """What $RESULT() gives, of tokens that were checked."""
    return $JAX_OF_TRUNK


def $RESULT(params, input_ids, lengths=None):
    """What $SAYS each token of input_ids [batch, seq]: [batch, seq, $WIDTH]. Rows have `lengths` tokens."""
    input_ids = checked(input_ids)
    lengths = jnp.full(input_ids.shape[0], input_ids.shape[1]) if lengths is None else jnp.asarray(lengths, jnp.int32)
    return all_$RESULT(params, input_ids, lengths)


def main():
    parser = argparse.ArgumentParser(description="says $PRINTED")
    parser.add_argument("--prompt-ids", default="1", help="tokens, by commas")
    parser.add_argument("--dtype", help="float32, bfloat16; as stored where it is left out")
    flags = parser.parse_args()
    prompt = [[int(word) for word in flags.prompt_ids.split(",")]]
    params = load(DIRECTORY, dtype=flags.dtype)
    print($JAX_PRINT[0].tolist())


if __name__ == "__main__":
    main()
)py";

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_RUNTIME_TEXT_H_
