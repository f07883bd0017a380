// Weights of a graph stored in another floating type, each behind a Cast that gives the graph its own again.
//
//   W: FLOAT [k, n] ----> MatMul        W.bf16: BFLOAT16 [k, n] -> Cast(to FLOAT) = W ----> MatMul
//
// Half the bytes where bf16 or f16 takes the place of f32; each weight is rounded once, to the nearest, and
// nothing else of the model knows. Runtimes fold the Cast when they load, or leave it for the chip.
#ifndef TWINFORGE_ONNX_STORE_AS_H_
#define TWINFORGE_ONNX_STORE_AS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/rewrite.h"

namespace twinforge {

struct StoreRule {
  std::string pattern;  // matches a whole name
  DType dtype = DType::kBF16;
};
// "h\.\d+\..*=bf16": bf16, f16 or f32. TF1003 where it is none, TF1102 where the pattern is no regular
// expression.
absl::StatusOr<StoreRule> ParseStoreRule(const std::string& text);

struct StoredAs {
  std::string name, from, to;  // initializer, and names of types
  int64_t bytes_before = 0, bytes_after = 0;
};

// Of the top graph's floating initializers, those whose name matches a rule (the first one counts) become
// programs of `rewrite`, and the message gets their Casts, before all other nodes. TF2020 where the operator
// set has no such Cast or a name is an input's too, TF1003 where a rule matches none.
absl::StatusOr<std::vector<StoredAs>> StoreAs(const std::vector<StoreRule>& rules, const OnnxModel& model,
                                              OnnxRewrite& rewrite);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_STORE_AS_H_
