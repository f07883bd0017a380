// What a file declares of its values, as facts.
//
//   dim_param "past_sequence_length + sequence_length"     that sum
//   dim_param "batch size"                                 one symbol, batch_size, as long as no other is
//   called so dim_value 0 or less, dim_param "" or "?"               not known: exporters write so
//
// A symbol has one value in a run. Inside a subgraph or a function a name is believed only if an input of the
// model has it: a loop's body may see another size each time round.
#ifndef TWINFORGE_ONNX_INFER_DECLARED_H_
#define TWINFORGE_ONNX_INFER_DECLARED_H_

#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "onnx/facts.h"

namespace onnx {
class TypeProto;
}  // namespace onnx

namespace twinforge {

class DeclaredTypes {
 public:
  // The fact of a declared type; `inside` a subgraph or function.
  OnnxFact FactOf(const ::onnx::TypeProto& type, bool inside);
  // The same of an input of the model: its symbols are believed everywhere.
  OnnxFact FactOfInput(const ::onnx::TypeProto& type);

  // The symbol that stands for `text`, the same for the same text.
  std::string SymbolFor(const std::string& text);

  // Symbols that stand for another text, by that text.
  const std::map<std::string, std::string>& renamed() const { return renamed_; }

 private:
  KnownDim ParamOf(const std::string& text);

  absl::flat_hash_map<std::string, KnownDim> params_;      // by dim_param
  absl::flat_hash_map<std::string, std::string> symbols_;  // by what they stand for
  absl::flat_hash_set<std::string> taken_, of_inputs_;     // symbols
  std::map<std::string, std::string> renamed_;
};

// What two facts of one value say against each other; empty where nothing.
std::string Contradiction(const OnnxFact& inferred, const OnnxFact& declared);
// `inferred`, and of `declared` what it leaves open.
void FillFrom(const OnnxFact& declared, OnnxFact& inferred);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_INFER_DECLARED_H_
