// What is known of every value of a model before anything runs: element type, shape, and the elements of
// small integer tensors, which are how exporters compute shapes.
//
//   input_ids                       INT64 [batch, seq]
//   Shape -> Gather(1)              INT64 [], elements {seq}
//   Concat(past, present)           FLOAT [batch, 12, past + seq, 64]
//
// Extents and elements are polynomials over the model's dim_params (ir/dim.h), each of them a size, hence not
// negative. A fact holds in every run that the model admits; what no rule knows is unknown, never guessed.
// Taken for granted is that Slice finds something: that an axis of which it cuts one end (x[1:], x[-1:]) is
// not empty, and that it does not begin behind the end of an axis (mask[past : past + seq]).
//
// No weight is read: elements come from tensors of at most kFewElements integers or bools.
#ifndef TWINFORGE_ONNX_FACTS_H_
#define TWINFORGE_ONNX_FACTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "ir/dim.h"
#include "onnx/element_type.h"
#include "onnx/model.h"

namespace twinforge {

inline constexpr int64_t kFewElements = 64;

using KnownDim = std::optional<Dim>;  // nullopt where it is not known

// What is known of one value. Of a sequence or an optional nothing is.
struct OnnxFact {
  std::optional<ElementType> type;
  std::optional<std::vector<KnownDim>>
      shape;  // nullopt: the rank is not known; an element nullopt: that extent
  // Of integer and bool tensors of at most kFewElements elements: each where it is known, row-major.
  std::optional<std::vector<KnownDim>> elements;

  std::optional<int64_t> Rank() const;
  KnownDim Extent(int64_t axis) const;                      // a negative axis counts from the end
  std::optional<int64_t> Number(int64_t axis) const;        // the extent, where it is a number
  std::optional<std::vector<int64_t>> Integers() const;     // the elements, where all are numbers
  std::optional<std::vector<int64_t>> NumberShape() const;  // the shape, where all extents are numbers
  bool FullShape() const;  // the rank and each extent, as a number or a polynomial

  bool operator==(const OnnxFact& other) const {
    return type == other.type && shape == other.shape && elements == other.elements;
  }
};

// "FLOAT [batch, past + seq, ?]", "? [...]" where the rank is not known.
std::string FactText(const OnnxFact& fact);

// A type that the file declares and inference contradicts, or an operator given what it cannot take.
struct OnnxMismatch {
  std::string node;  // as diagnostics call it, or "value ..." of a declared type
  std::string message;
};

class OnnxFacts {
 public:
  // An empty fact where nothing is known. Of a subgraph or a function's body that runs several times: what
  // holds each time.
  const OnnxFact& Of(const OnnxGraph& graph, int32_t slot) const;

  const std::vector<OnnxMismatch>& mismatches() const { return mismatches_; }
  // The symbols that stand for texts which are no polynomials of names, by those: dim_params ("batch size"),
  // and the smaller of two sizes ("min(seq, 512)") where Slice cuts by one that may be the larger.
  const std::map<std::string, std::string>& renamed() const { return renamed_; }
  int64_t node_visits() const { return node_visits_; }  // linear in the nodes of the file

 private:
  friend class OnnxInference;
  absl::flat_hash_map<const OnnxGraph*, std::vector<OnnxFact>> facts_;
  std::vector<OnnxMismatch> mismatches_;
  std::map<std::string, std::string> renamed_;
  int64_t node_visits_ = 0;
};

// TF2005 where graphs and functions call each other too deeply; contradictions are mismatches, no failure.
absl::StatusOr<OnnxFacts> InferOnnx(const OnnxModel& model);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_FACTS_H_
