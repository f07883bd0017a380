// What is known of an ONNX value that depends on the tokens: a linear combination of elements of terms.
//
//   q turned      factor * sum over parts of coef[i] * term[index[i]]
//
// A term is one thing that a block computes (a projection, a norm, softmax); operators that only move
// elements, scale them, or add a term's elements to each other make no term but another flow over the same
// one. So a head split by Reshape and Transpose, keys repeated by Expand, Tile or Gather, and a rotary turn
// written with Slice, Neg and Concat all end as a few numbers per element, whatever operators wrote them.
//
// Everything is computed at a probe: a batch and a sequence of few places (probe.h).
#ifndef TWINFORGE_IMPORTERS_ONNX_FLOW_H_
#define TWINFORGE_IMPORTERS_ONNX_FLOW_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/ops.pb.h"
#include "onnx/tensor.h"
#include "weights/shape.h"
#include "weights/weight.h"

namespace twinforge {

using FlowIndex = std::shared_ptr<const std::vector<int64_t>>;
using FlowCoef = std::shared_ptr<const std::vector<double>>;

struct FlowPart {
  FlowIndex index;  // null: element i of the term, row-major
  FlowCoef coef;    // null: 1 everywhere
};

struct Flow {
  int term = -1;
  Shape shape;
  double factor = 1;
  std::vector<FlowPart> parts = std::vector<FlowPart>(1);

  int64_t count() const { return ElementCount(shape); }
  // The term itself but for a number: row-major, whatever the shape.
  bool whole() const { return parts.size() == 1 && parts[0].index == nullptr && parts[0].coef == nullptr; }
  bool plain() const { return whole() && factor == 1; }
};

// Whether both are the same elements.
bool SameFlow(const Flow& a, const Flow& b);
// index i of part p, and its coefficient.
inline int64_t IndexAt(const FlowPart& part, int64_t i) { return part.index ? (*part.index)[i] : i; }
inline double CoefAt(const FlowPart& part, int64_t i) { return part.coef ? (*part.coef)[i] : 1; }

enum class TermKind : uint8_t {
  kTokens,     // ids that the caller gives; `word` is the graph's input
  kParam,      // the elements of a weight
  kEmbed,      // rows of `kernel` by tokens, times `number`
  kRows,       // rows of `kernel` by the known places in `known`
  kLinear,     // in . kernel [in, out] + bias [out]
  kNorm,       // over groups of `width` features; `word` is "rms" or "layer"
  kCentre,     // in minus its mean over the last axis
  kAct,        // an activation, `act`
  kUnary,      // another elementwise operator, `word`
  kAdd,        // two terms
  kMul,        // two terms
  kAddNumber,  // in + number
  kAddKnown,   // in + known
  kWhere,      // in where `known`, else `number`
  kMean,       // over the last axis, which stays as 1
  kMax,        // the same
  kSum,        // the same
  kMinusMax,   // in minus its maximum over the last axis
  kScores,     // in[0] . in[1] over the width of a head
  kSoftmax,    // along the last axis
  kConcat,     // in[0] and in[1] along the last axis
  kIsNan,
  kAttend,    // `attend`
  kTop,       // the `width` largest along the last axis
  kTopPlace,  // where these are
  kNormTop,   // kTop, to a sum of 1
  kChosen,    // rows of `kernel` by in[0], a kTopPlace
  kExperts,   // in[0] . kernel[e] + bias[e] for the experts e of in[1]: [batch, seq, width, out]
  kGlu,       // the gate in[0] and the value in[1], as `glu` says
  kMixture,   // the sum over a token's experts of in[0] times in[1]
  kOther,     // an operator that is not understood: `word`
};

// Heads of one operand of attention: feature of the term that holds place d of head h.
struct HeadPlaces {
  int term = -1;
  int64_t heads = 0, width = 0;
  std::vector<int64_t> features;  // [heads, width]
};

// softmax(scale q k^T, masked) v, its heads in groups that share a key.
struct AttendTerm {
  HeadPlaces q, k, v;
  AttentionAttrs attrs;
  WeightPtr sinks;               // [heads], or null
  std::vector<int64_t> places;   // head as the file counts it -> head here
  std::vector<int64_t> numbers;  // large numbers of the file from which the mask was computed
};

struct Term {
  TermKind kind = TermKind::kOther;
  int node = -1;  // of the file's graph
  Shape shape;    // [batch, seq, features] of what a token has
  std::vector<Flow> in;
  WeightPtr kernel, bias;
  OnnxTensor known;
  double number = 0;
  int64_t width = 0;
  double offset = 0;  // of a norm's weight
  Activation act = ACTIVATION_UNSET;
  std::string word;
  std::vector<int64_t> numbers;  // of known, as a traced value's
  std::shared_ptr<const AttendTerm> attend;
  std::shared_ptr<const MlpAttrs> glu;

  int64_t count() const { return ElementCount(shape); }
};

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_FLOW_H_
