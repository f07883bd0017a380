// Whether two graphs over the same stored tensors compute one function, by computing both.
//
// Everything in f64, weight programs without the rounding of their storage: what is then left between a model
// and a twin that is equal in real arithmetic is the order of sums. Stored values and inputs are made up
// (values.h, inputs.h), so that no accident of a checkpoint, an expert that is never chosen or a bias of 0,
// hides a difference. A function of real numbers that agrees on such values but for the last bits agrees
// everywhere: two different ones of the kind that models are made of meet on a set without volume.
//
// How close two values must be follows from the fidelity that is claimed; nobody types it.
#ifndef TWINFORGE_PROOF_ALGEBRA_H_
#define TWINFORGE_PROOF_ALGEBRA_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "eval/tensor.h"
#include "ir/graph.h"
#include "proof/inputs.h"

namespace twinforge {

// Of the largest value of an output. f64 carries 2^-53; a deep model passes a few thousand of that on.
inline constexpr double kSameInRealArithmetic = 1e-11;

// Every value of every trial, by output name, and of some nodes by path: all trials with quiet values, then
// all with loud ones (values.h).
struct FunctionValues {
  std::vector<NamedTensors> outputs;
  std::vector<std::map<std::string, Tensor>> nodes;
};

struct FunctionDifference {
  double largest = 0;  // |a - b| over the largest |a| of that value, over all that was compared
  int64_t values = 0;  // compared
  bool differs = false;
  std::string output;  // the first that differs
  std::string what;    // of it: "logits of 2 x 11 tokens: ..."
  std::string reason;  // why it can't be told, where it can't: a value that is not finite
};

// Evaluates `graph` on the trials, in f64, with made values. `watched`: nodes whose values are kept.
absl::StatusOr<FunctionValues> ValuesOf(const Graph& graph, const std::vector<ProofTrial>& trials,
                                        const std::vector<std::string>& watched = {});

// The outputs of a twin beside the source's.
FunctionDifference CompareOutputs(const std::vector<ProofTrial>& trials, const FunctionValues& source,
                                  const FunctionValues& twin);

// One value beside another. An axis that the twin has padded is compared over the source's extent.
struct TensorDifference {
  bool shapes_fit = true;
  bool finite = true;
  double largest = 0;  // over the largest magnitude in `a`
  int64_t at = 0;      // element of `a`
};
TensorDifference CompareTensors(const Tensor& a, const Tensor& b);

// Both together.
absl::StatusOr<FunctionDifference> CompareFunctions(const Graph& source, const Graph& twin, uint64_t seed);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_ALGEBRA_H_
