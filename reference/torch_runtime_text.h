// Parts of an emitted PyTorch module that are the same for every model.
#ifndef TWINFORGE_REFERENCE_TORCH_RUNTIME_TEXT_H_
#define TWINFORGE_REFERENCE_TORCH_RUNTIME_TEXT_H_

namespace twinforge {

inline constexpr char kTorchHeader[] =
    R"py("""$MODEL in PyTorch. Written by twinforge from the graph of the twin in whose folder this file lies.

    python reference/model_torch.py --prompt-ids 1,2,3 --steps 16

    model = load()                                   # or load(directory, dtype=torch.float32, device="cuda")
    logits(model, input_ids)                         # [batch, seq, vocab]; model(input_ids) too
    generate(model, input_ids, steps=16)             # [batch, steps]

Sequences of several lengths are padded behind; what stands there changes no token before it.
"""
import argparse
$MATHfrom dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

DIRECTORY = Path(__file__).resolve().parent.parent
)py";

inline constexpr char kTorchEncoderHeader[] =
    R"py("""$MODEL in PyTorch. Written by twinforge from the graph of the twin in whose folder this file lies.

    python reference/model_torch.py --prompt-ids 1,2,3

    model = load()                                   # or load(directory, dtype=torch.float32, device="cuda")
    $RESULT(model, input_ids)$PAD                  # [batch, seq, $WIDTH]; model(input_ids) too
    $RESULT(model, input_ids, lengths)$PAD         # of sequences that are padded behind

Every token sees the whole sequence, so there is nothing to generate.
"""
import argparse
$MATHfrom dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

DIRECTORY = Path(__file__).resolve().parent.parent
)py";

// A class as FunctionSet takes it.
inline constexpr char kTorchBlock[] = R"py(class $(nn.Module):
    """A block and its parameters, by the names of the graph's slots. A parameter that comes in is shared."""

    def __init__(self, **params):
        super().__init__()
        for name, value in params.items():
            shared = isinstance(value, nn.Parameter)
            self.register_parameter(name, value if shared else nn.Parameter(value, requires_grad=False))
)py";

inline constexpr char kTorchTake[] = R"py(

def take(x, axis, *places):
    """What stands at `places`, ranges along an axis."""
    return x.index_select(axis, torch.tensor([place for run in places for place in run]))
)py";

// Methods of Model.
inline constexpr char kTorchForward[] = R"py(
    def forward(self, input_ids, positions=None, cache=None):
        """Logits [batch, seq, vocab] after each token of input_ids [batch, seq]; with a cache of what came before."""
        if positions is None:
            positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
        return self.head(self.trunk(input_ids, positions, cache))
)py";

inline constexpr char kTorchEncoderForward[] = R"py(
    def forward(self, input_ids, lengths=None):
        """What $SAYS each token of input_ids [batch, seq]: [batch, seq, $WIDTH]. Rows have `lengths`."""
        batch, seq = input_ids.shape
        if lengths is None:
            lengths = torch.full((batch,), seq, device=input_ids.device)
        positions = torch.arange(seq, device=input_ids.device).expand(batch, seq)
        return $TORCH_OF_TRUNK
)py";

inline constexpr char kTorchLoad[] = R"py(

class Reader:
    """Stored tensors by name. The safetensors files are mapped into memory: what is not used is never read."""

    def __init__(self, directory):
        self.files = {}
        for path in sorted(Path(directory).glob("model*.safetensors")):
            file = safe_open(path, framework="pt")
            self.files |= dict.fromkeys(file.keys(), file)

    def __call__(self, name):
        return self.files[name].get_tensor(name)


def load(directory=DIRECTORY, dtype=None, device="cpu"):
    """The model of the twin in `directory`, its parameters as they are stored or in `dtype`."""
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    return Model(Reader(directory)).to(device=device, dtype=dtype).eval()
)py";

inline constexpr char kTorchDecoder[] = R"py(

def init_cache(batch, length, dtype, device="cpu"):
    """Room for what layers remember of `length` tokens of each sequence."""
$CACHE

def prefill(params, cache, input_ids, lengths):
    """Logits [batch, vocab] after the last token of each prompt, and the cache, which is filled in its place.

    Prompts [batch, seq] have `lengths` tokens each and stand at the beginning of their rows.
    """
    positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
    x = params.trunk(input_ids, positions, cache)
    rows = torch.arange(input_ids.shape[0], device=input_ids.device)
    return params.head(x[rows, lengths - 1][:, None])[:, 0], cache


def decode_step(params, cache, tokens, positions):
    """Logits [batch, vocab] after one more token of each sequence, at its position, and the cache with it."""
    return params(tokens[:, None], positions[:, None], cache)[:, 0], cache


$CHECKED

def logits(params, input_ids):
    """Logits [batch, seq, vocab] after each token of input_ids [batch, seq]."""
    return params(checked(input_ids, $TABLE.device))


def generate(params, input_ids, steps, lengths=None, temperature=0.0, generator=None):
    """`steps` tokens after each prompt, [batch, steps]: the likeliest, or drawn where temperature > 0."""
    table = $TABLE  # its dtype is that of all activations
    input_ids = checked(input_ids, table.device, steps)
    batch, seq = input_ids.shape
    length = seq + steps
    lengths = [seq] * batch if lengths is None else lengths
    lengths = torch.as_tensor(lengths, dtype=torch.long, device=table.device)
    said = [input_ids[:, :0]]
    row, cache = prefill(params, init_cache(batch, length, table.dtype, table.device), input_ids, lengths)
    for step in range(steps):
        if temperature == 0:
            drawn = row.argmax(dim=-1, keepdim=True)
        else:
            drawn = torch.multinomial(torch.softmax(row.float() / temperature, dim=-1), 1, generator=generator)
        said.append(drawn)
        if step + 1 < steps:
            row, cache = decode_step(params, cache, drawn[:, 0], lengths + step)
    return torch.cat(said, dim=1)


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
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32", "float64"], help="else as stored")
    parser.add_argument("--device", default="cpu")
    flags = parser.parse_args()
    words = tokenizer(DIRECTORY)
    if flags.prompt is not None and words is None:
        parser.error("--prompt needs tokenizer.json in the twin's folder and the package tokenizers; or --prompt-ids")
    prompt = words.encode(flags.prompt).ids if flags.prompt else [int(word) for word in flags.prompt_ids.split(",")]
    model = load(DIRECTORY, dtype=flags.dtype, device=flags.device)
    generator = torch.Generator(flags.device).manual_seed(flags.seed)
    said = generate(model, [prompt], flags.steps, temperature=flags.temperature, generator=generator)[0].tolist()
    print("tokens:", *said)
    if words is not None:
        print("text:", words.decode(prompt + said))


if __name__ == "__main__":
    main()
)py";

// Tokens that a caller gives, before anything is computed of them (checked_tokens.h).
inline constexpr char kTorchChecked[] = R"py(def checked(input_ids, device, further=0):
    """Tokens [batch, seq] on the device, each a word that has a place, and so have as many `further` ones."""
    input_ids = torch.as_tensor(input_ids, dtype=torch.long, device=device)
    if input_ids.numel() and not 0 <= input_ids.min() <= input_ids.max() < $WORDS:
        span = f"{int(input_ids.min())} to {int(input_ids.max())}"
        raise ValueError(f"tokens from {span}, and the model has {$WORDS} words")
$LIMIT    return input_ids
)py";

inline constexpr char kTorchEncoder[] = R"py(

$CHECKED

def $RESULT(params, input_ids, lengths=None):
    """What $SAYS each token of input_ids [batch, seq]: [batch, seq, $WIDTH]. Rows have `lengths` tokens."""
    device = $TABLE.device
    lengths = None if lengths is None else torch.as_tensor(lengths, dtype=torch.long, device=device)
    return params(checked(input_ids, device), lengths)


def main():
    parser = argparse.ArgumentParser(description="says $PRINTED")
    parser.add_argument("--prompt-ids", default="1", help="tokens, by commas")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32", "float64"], help="else as stored")
    parser.add_argument("--device", default="cpu")
    flags = parser.parse_args()
    prompt = [[int(word) for word in flags.prompt_ids.split(",")]]
    model = load(DIRECTORY, dtype=flags.dtype, device=flags.device)
    print($TORCH_PRINT[0].tolist())


if __name__ == "__main__":
    main()
)py";

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_TORCH_RUNTIME_TEXT_H_
