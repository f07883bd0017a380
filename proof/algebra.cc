#include "proof/algebra.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "eval/evaluate.h"
#include "proof/values.h"

namespace twinforge {
namespace {

// Where element `index` of `a` stands in a tensor of extents `b`.
int64_t PlaceIn(const Shape& a, const Shape& b, int64_t index) {
  int64_t place = 0, step = 1;
  for (size_t i = a.size(); i-- > 0;) {
    place += index % a[i] * step;
    index /= a[i];
    step *= b[i];
  }
  return place;
}

bool Holds(const Shape& outer, const Shape& inner) {
  if (outer.size() != inner.size()) return false;
  for (size_t i = 0; i < outer.size(); ++i) {
    if (outer[i] < inner[i]) return false;
  }
  return true;
}

bool AllFinite(const Tensor& x) {
  return std::all_of(x.values().begin(), x.values().end(), [](double value) { return std::isfinite(value); });
}

// A graph made ready with one set of made-up values.
struct Made {
  explicit Made(const ProofTrial& trial) : tensors(trial.seed, trial.loudness), params(tensors) {}
  const MadeTensors tensors;
  const StoredParams params;
  std::unique_ptr<Evaluation> evaluation;
};

}  // namespace

TensorDifference CompareTensors(const Tensor& a, const Tensor& b) {
  TensorDifference found;
  found.shapes_fit = Holds(b.shape(), a.shape());
  if (!found.shapes_fit) return found;
  found.finite = AllFinite(a);
  if (!found.finite) return found;
  double size = 0;
  for (double value : a.values()) size = std::max(size, std::abs(value));
  if (size == 0) size = 1;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double difference = std::abs(a.data()[i] - b.data()[PlaceIn(a.shape(), b.shape(), i)]) / size;
    if (difference <= found.largest) continue;  // what is no number is larger than anything
    found.largest = std::isnan(difference) ? HUGE_VAL : difference;
    found.at = i;
  }
  return found;
}

absl::StatusOr<FunctionValues> ValuesOf(const Graph& graph, const std::vector<ProofTrial>& trials,
                                        const std::vector<std::string>& watched) {
  const std::set<std::string> wanted(watched.begin(), watched.end());
  std::map<std::string, Tensor> seen;
  EvalOptions options{.dtype = DType::kF64, .unrounded_weights = true};
  options.observe = [&](const Node& node, const Tensor& value) {
    if (wanted.count(node.path) > 0) seen[node.path] = value;
  };
  FunctionValues values;
  std::unique_ptr<Made> made;
  DecodeState state;
  for (size_t t = 0; t < trials.size(); ++t) {
    const ProofTrial& trial = trials[t];
    if (!trial.continues) {
      made = std::make_unique<Made>(trial);
      TWIN_ASSIGN_OR_RETURN(made->evaluation, Evaluation::Make(graph, made->params, options));
      state = {};
    }
    const bool alone = !trial.continues && (t + 1 == trials.size() || !trials[t + 1].continues);
    TWIN_ASSIGN_OR_RETURN(NamedTensors outputs,
                          made->evaluation->Run(trial.inputs, alone ? nullptr : &state));
    values.outputs.push_back(std::move(outputs));
    values.nodes.push_back(std::move(seen));
    seen = {};
  }
  return values;
}

FunctionDifference CompareOutputs(const std::vector<ProofTrial>& trials, const FunctionValues& source,
                                  const FunctionValues& twin) {
  FunctionDifference found;
  const auto differs = [&](const std::string& output, const std::string& what) {
    if (!found.differs) {
      found.output = output;
      found.what = what;
    }
    found.differs = true;
  };
  for (size_t t = 0; t < source.outputs.size(); ++t) {
    for (const auto& [name, want] : source.outputs[t]) {
      const std::string what = absl::StrCat(name, " of ", trials[t].name);
      const auto got = twin.outputs[t].find(name);
      if (got == twin.outputs[t].end() || got->second.shape() != want.shape()) {
        differs(name, got == twin.outputs[t].end()
                          ? absl::StrCat("the twin has no output ", name)
                          : absl::StrCat(what, ": the source's is ", ShapeText(want.shape()), ", the twin's ",
                                         ShapeText(got->second.shape())));
        continue;
      }
      const TensorDifference difference = CompareTensors(want, got->second);
      if (!difference.finite) {
        found.reason = absl::StrCat(what, ": the source itself is not finite there");
        continue;
      }
      found.values += want.count();
      found.largest = std::max(found.largest, difference.largest);
      if (difference.largest <= kSameInRealArithmetic) continue;
      const double other = got->second.data()[difference.at];
      differs(name, absl::StrCat(what, ", element ", difference.at, ": the source's is ",
                                 want.data()[difference.at], ", the twin's ", other));
    }
  }
  return found;
}

absl::StatusOr<FunctionDifference> CompareFunctions(const Graph& source, const Graph& twin, uint64_t seed) {
  TWIN_ASSIGN_OR_RETURN(const std::vector<ProofTrial> trials, TrialsFor(source, twin, seed));
  TWIN_ASSIGN_OR_RETURN(const FunctionValues a, ValuesOf(source, trials));
  TWIN_ASSIGN_OR_RETURN(const FunctionValues b, ValuesOf(twin, trials));
  return CompareOutputs(trials, a, b);
}

}  // namespace twinforge
