// Runs an ONNX graph over flows (flow.h): node by node, with what the tokens do not decide computed outright.
//
//   known    masks, positions, rotary tables, shapes: the operators' own kernels compute them (onnx/run.h)
//   weight   a program over stored tensors; operators that move or scale it stay in the program
//   flow     what depends on tokens
//
// A rule (rules.h) says what an operator makes of flows and weights. Where none does, the operator is not
// understood: what comes of it has it as its cause, and the nearest miss is kept for the diagnostic.
#ifndef TWINFORGE_IMPORTERS_ONNX_TRACE_H_
#define TWINFORGE_IMPORTERS_ONNX_TRACE_H_

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "importers/onnx/flow.h"
#include "importers/onnx/stored.h"
#include "onnx/model.h"
#include "onnx/run.h"

namespace twinforge {

// At which sizes a graph is looked at, and with which tokens hidden.
struct OnnxProbe {
  int64_t batch = 2, seq = 7;
  int64_t hidden = 0;                  // first places of the last sequence that attention_mask hides
  std::map<int64_t, int64_t> numbers;  // integer constants of the file -> what stands in their place
};

struct TracedValue {
  std::optional<OnnxTensor> known;
  WeightPtr weight;
  std::optional<Flow> flow;
  std::vector<int64_t> numbers;  // of known: constants of the file, no less than seq, that it was made from
  bool fixed = false;            // of known: constants alone decide it
  int cause = -1;                // the node that is not understood
  bool nothing() const { return !known && weight == nullptr && !flow; }
};

// What kept a rule from holding.
struct NearMiss {
  int node = -1;
  std::string message;
};

class OnnxTrace {
 public:
  OnnxTrace(const OnnxModel& model, const OnnxStored& stored, OnnxProbe probe);
  // Looks at every node. A node that is not understood is no failure.
  absl::Status Run();

  const OnnxModel& model() const { return model_; }
  const OnnxStored& stored() const { return stored_; }
  const OnnxProbe& probe() const { return probe_; }
  int64_t rows() const { return probe_.batch * probe_.seq; }
  const std::deque<Term>& terms() const { return terms_; }
  const Term& term(int id) const { return terms_[id]; }
  const Term& term(const Flow& flow) const { return terms_[flow.term]; }
  const TracedValue& value(int32_t slot) const { return values_[slot]; }
  const std::vector<NearMiss>& misses() const { return misses_; }
  // Inputs of the graph that hold keys and values of earlier calls.
  const std::vector<int32_t>& caches() const { return caches_; }

  // ---- for rules
  int AddTerm(Term term);
  // Elements of what no token decides: known, a small weight, or rows of one. nullopt where it is none.
  std::optional<OnnxTensor> Known(int32_t slot);
  bool Knowable(int32_t slot) const;
  // The operator's results on known inputs, those of `given` (by place) instead of the node's own.
  std::optional<std::vector<OnnxTensor>> Compute(const OnnxNode& node,
                                                 const std::map<int, OnnxTensor>& given);
  void Miss(int node, std::string message);
  std::vector<TracedValue>& results() { return results_; }

  // Where flow[row, f] is term[row, places[f]] for every row of tokens: those places.
  std::optional<std::vector<int64_t>> Features(const Flow& flow) const;
  // Features of a token in a term.
  int64_t Width(int term) const { return terms_[term].count() / rows(); }
  // A flow that is one term whole; made of a linear combination by calling it a term.
  std::string NodeName(int node) const;

 private:
  absl::Status SetInitializers();
  absl::Status SetInputs();
  void SetInput(int32_t slot, const ::onnx::ValueInfoProto& info);
  void Step(int index);
  bool StepKnown(const OnnxNode& node, bool fixed, std::vector<int64_t> numbers);
  std::vector<int32_t> Needs(const OnnxNode& node) const;
  OnnxTensor Replaced(OnnxTensor tensor, std::vector<int64_t>& numbers) const;

  const OnnxModel& model_;
  const OnnxStored& stored_;
  const OnnxProbe probe_;
  OnnxRunner runner_;
  OnnxFrame frame_;
  std::vector<TracedValue> values_;
  std::vector<TracedValue> results_;
  std::map<int32_t, OnnxTensor> loaded_;
  std::deque<Term> terms_;  // references stay good while rules add to it
  std::vector<NearMiss> misses_;
  std::vector<int32_t> caches_;
};

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_TRACE_H_
