// The walk over a model that fills OnnxFacts: each node once, except in what may run several times.
//
// A subgraph or function runs once for each different set of facts that it is given, and is remembered; when
// kVisitsPerNode times the file's nodes have been visited, the rest runs once, with nothing known of what it
// is given. So the work is linear in the file, however graphs and functions are nested.
#ifndef TWINFORGE_ONNX_INFER_INFERENCE_H_
#define TWINFORGE_ONNX_INFER_INFERENCE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "onnx/facts.h"
#include "onnx/infer/declared.h"
#include "onnx/run.h"

namespace twinforge {

// One graph while it is walked.
struct InferFrame {
  const OnnxGraph* graph = nullptr;
  std::vector<OnnxFact> facts;                          // by slot
  std::vector<const ::onnx::TensorProto*> constants;    // by slot: the tensor that it is, or nullptr
  absl::Span<const ::onnx::TypeProto* const> declared;  // by slot: what the file says of it, or nullptr
  const OnnxAttributes* attributes = nullptr;           // of the function around, if any
  bool anything = false;  // runs with nothing known, attributes by reference neither
};

class OnnxInference {
 public:
  static constexpr int64_t kVisitsPerNode = 64, kVisitsAnyway = 4096;

  explicit OnnxInference(const OnnxModel& model);
  absl::StatusOr<OnnxFacts> Run();

  // For rules.
  std::vector<OnnxFact> RunSubgraph(const OnnxGraph& graph, std::vector<OnnxFact> inputs,
                                    const InferFrame& around);
  OnnxFact FactOf(const ::onnx::TensorProto& tensor) const;
  std::optional<std::vector<double>> SmallNumbers(const ::onnx::TensorProto& tensor) const;
  // A symbol, the same for the same text: a size cut to another that may be smaller.
  Dim CutSymbol(const std::string& text, const Dim& a, const Dim& b);
  bool IsCutFrom(const Dim& cut, const Dim& whole) const;  // by a number of 2 or more

 private:
  // What a graph was given, and what came out.
  struct Given {
    std::vector<OnnxFact> facts;  // of its inputs, then of its captures
    std::vector<const ::onnx::TensorProto*> constants;
    const OnnxAttributes* attributes = nullptr;
    bool anything = false;
  };
  struct Remembered {
    Given given;
    OnnxAttributes attributes;
    std::vector<OnnxFact> outputs;
  };

  std::vector<OnnxFact> RunGiven(const OnnxGraph& graph, Given given);
  const Remembered* Recall(const OnnxGraph& graph, const Given& given) const;
  std::vector<OnnxFact> WalkGiven(const OnnxGraph& graph, const Given& given);
  void Walk(InferFrame& frame);
  void InferNode(const OnnxNode& node, InferFrame& frame);
  void CallRule(const OnnxNode& node, InferFrame& frame);
  void CallFunction(const OnnxNode& node, InferFrame& frame);
  void SetInitializers(InferFrame& frame, absl::Span<const int32_t> given);
  void SetFact(InferFrame& frame, int32_t slot, OnnxFact fact);  // with what is declared of it
  void Keep(InferFrame& frame);
  void Report(const void* about, std::string node, std::string message);
  absl::Span<const ::onnx::TypeProto* const> DeclaredIn(const OnnxGraph& graph);

  const OnnxModel& model_;
  DeclaredTypes declared_;
  absl::flat_hash_map<const OnnxGraph*, const ::onnx::FunctionProto*> functions_;                // by body
  absl::flat_hash_map<const OnnxGraph*, std::vector<const ::onnx::TypeProto*>> declared_types_;  // by slot
  absl::flat_hash_map<const OnnxGraph*, std::vector<Remembered>> memory_;
  absl::flat_hash_map<std::string, std::pair<Dim, Dim>> cuts_;  // by symbol
  absl::flat_hash_set<const void*> reported_;
  OnnxFacts out_;
  int64_t most_visits_ = 0;
  int depth_ = 0;
  absl::Status status_;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_INFER_INFERENCE_H_
