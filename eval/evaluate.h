// What a graph computes, by computing it: primitives in f64, each result rounded to its node's dtype.
//
//   StoredParams params(*model.reader);
//   Evaluate(model.graph, params, {{"tokens", ids}}, {.dtype = DType::kF64})   ->  {"logits": [batch, seq,
//   vocab]}
//
// A composite is evaluated by its decomposition (ir/decompose.h), which is its definition; there is no second
// meaning here. Slow on purpose, and sized for small models: whole tensors, one thread.
//
// Inputs are the graph's, by name, as [batch, seq]; their extents bind the symbols of its types. Beside them
//   positions    [batch, seq]  where each token stands; default past, past + 1, ...
//   token_types  [batch, seq]  rows of a type table; default 0
// Prefill and decode are one function: a DecodeState carries what attention remembers from call to call.
#ifndef TWINFORGE_EVAL_EVALUATE_H_
#define TWINFORGE_EVAL_EVALUATE_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "eval/params.h"
#include "eval/tensor.h"
#include "ir/graph.h"

namespace twinforge {

struct EvalOptions {
  // Every floating parameter and result in this type (f64, f32, bf16, f16) instead of the model's own. What a
  // decomposition computes in f32 whatever the model's type is (norms, softmax, rotary tables) is f32 or
  // wider.
  std::optional<DType> dtype;
  // Weight programs without the rounding of their storage (weights/rounding.h, Unrounded). Only with dtype
  // f64.
  bool unrounded_weights = false;
  // Keep parameters between calls of Run(). Off, one is read when it is used and dropped.
  bool keep_params = true;
  // More elements in one value or parameter are TF1902: a mistake, or a model that is not meant for this. 8
  // GiB.
  int64_t max_elements = int64_t{1} << 30;
  // Called with each node of the graph and its value, in order.
  std::function<void(const Node&, const Tensor&)> observe;
};

// What generation carries from one call to the next. Fresh: nothing was seen yet.
struct DecodeState {
  int64_t past = 0;     // tokens seen
  NamedTensors values;  // "layers.0.attn.k" -> [batch, past, kv_heads, head_dim]
};

// A graph made ready to run many times. Not thread-safe.
class Evaluation {
 public:
  // `graph` and `params` outlive it. TF1901 for a dtype that is not a floating one.
  static absl::StatusOr<std::unique_ptr<Evaluation>> Make(const Graph& graph, const ParamSource& params,
                                                          EvalOptions options = {});
  virtual ~Evaluation() = default;

  // The graph's outputs by name. With `state`, the tokens continue those that it has seen, and it is brought
  // up to date; without, they stand alone. TF1901 for inputs that are absent, unknown, ill-shaped or out of
  // range.
  virtual absl::StatusOr<NamedTensors> Run(const NamedTensors& inputs, DecodeState* state = nullptr) = 0;
};

// Make and Run, once.
absl::StatusOr<NamedTensors> Evaluate(const Graph& graph, const ParamSource& params,
                                      const NamedTensors& inputs, const EvalOptions& options = {},
                                      DecodeState* state = nullptr);

}  // namespace twinforge

#endif  // TWINFORGE_EVAL_EVALUATE_H_
