"""Functions of an emitted JAX module compiled in a third of the time, for models so tiny that compiling is all there is."""
import jax

# XLA's older emitters of loops: equal numbers, code less fast. They multiply no bfloat16.
OPTIONS = {"xla_cpu_use_fusion_emitters": False}


def quick(function):
    """A jitted function of float32, compiled once for each shape of its arguments."""
    compiled = {}

    def call(*args):
        key = str(jax.tree.map(lambda leaf: (getattr(leaf, "shape", ()), str(getattr(leaf, "dtype", type(leaf)))), args))
        if key not in compiled:
            compiled[key] = function.lower(*args).compile(compiler_options=OPTIONS)
        return compiled[key](*args)

    call.clear_cache = lambda: (compiled.clear(), function.clear_cache())
    return call


def quickened(module):
    """The module, whose steps are so compiled."""
    for name in ("all_logits", "all_hidden_states", "prefill", "decode_step"):
        if hasattr(module, name):
            setattr(module, name, quick(getattr(module, name)))
    return module
