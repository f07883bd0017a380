#include "proof/rounding.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "eval/evaluate.h"
#include "eval/retype.h"
#include "proof/algebra.h"
#include "proof/inputs.h"
#include "proof/values.h"
#include "transforms/transform.h"
#include "transforms/transforms.pb.h"
#include "weights/rounding.h"

namespace twinforge {
namespace {

constexpr int64_t kElementsAtOnce = 1 << 20;

std::vector<double> Doubles(DType dtype, const std::vector<std::byte>& bytes, int64_t count) {
  std::vector<double> values(count);
  Convert(dtype, bytes.data(), DType::kF64, reinterpret_cast<std::byte*>(values.data()), count);
  return values;
}

// One program, read three ways: as stored, exact, and how far the two may be apart.
class Measurer {
 public:
  Measurer(std::string name, WeightPtr stored, const TensorReader& reader)
      : stored_(std::move(stored)), bound_(ErrorBoundOf(stored_)), reader_(reader) {
    found_.name = std::move(name);
    found_.claimed = StatedRoundings(stored_).Bound();
  }

  absl::StatusOr<RoundedTensor> Run() {
    if (!bound_.known) {
      found_.verdict = Verdict::kIncomplete;
      found_.detail = "its program divides by a rounded number or rounds to a type without infinities";
      return std::move(found_);
    }
    const Shape& shape = stored_->shape();
    const int64_t rows = shape.empty() ? 1 : shape[0];
    const int64_t width = rows == 0 ? 1 : std::max<int64_t>(stored_->element_count() / rows, 1);
    const int64_t at_once = std::max<int64_t>(kElementsAtOnce / width, 1);
    for (int64_t row = 0; row < rows; row += at_once) {
      Box box = WholeBox(shape);
      if (!shape.empty()) {
        box.start[0] = row;
        box.size[0] = std::min(at_once, rows - row);
      }
      TWIN_RETURN_IF_ERROR(LookAt(box));
    }
    found_.mean = looked_ == 0 ? 0 : sum_ / static_cast<double>(looked_);
    return std::move(found_);
  }

 private:
  absl::Status LookAt(const Box& box) {
    TWIN_ASSIGN_OR_RETURN(const std::vector<double> stored, Values(stored_, box));
    TWIN_ASSIGN_OR_RETURN(const std::vector<double> exact, Values(bound_.exact, box));
    std::vector<double> inner;
    if (bound_.inner != nullptr) {
      TWIN_ASSIGN_OR_RETURN(inner, Values(bound_.inner, box));
    }
    for (size_t i = 0; i < stored.size(); ++i) Look(stored[i], exact[i], inner.empty() ? 0 : inner[i]);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> Values(const WeightPtr& program, const Box& box) {
    const int64_t count = ElementCount(box.size);
    std::vector<std::byte> bytes(count * ElementBytes(program->dtype()));
    TWIN_RETURN_IF_ERROR(Read(program, box, reader_, bytes.data(), scratch_));
    return Doubles(program->dtype(), bytes, count);
  }

  void Look(double stored, double exact, double inner) {
    if (!std::isfinite(exact) && !std::isfinite(stored)) return;  // it was no number before
    const double lost = std::abs(stored - exact);
    const double allowed = bound_.relative * std::abs(exact) + bound_.absolute + inner;
    // As a part of the magnitude of which `allowed` is the part that all roundings together may take.
    const double part = lost == 0 ? 0 : lost / allowed * bound_.of_magnitude;
    ++looked_;
    sum_ += part;
    found_.largest = std::max(found_.largest, part);
    if (lost <= allowed || found_.verdict == Verdict::kRefuted) return;
    found_.verdict = Verdict::kRefuted;
    found_.detail = absl::StrFormat(
        "an element is %.17g in real arithmetic and %.17g stored, %.3g apart; its "
        "roundings account for %.3g",
        exact, stored, lost, allowed);
  }

  const WeightPtr stored_;
  const ErrorBound bound_;
  const TensorReader& reader_;
  Scratch scratch_;
  RoundedTensor found_;
  int64_t looked_ = 0;
  double sum_ = 0;
};

// The first trial's first output at `dtype`.
absl::StatusOr<Tensor> OutputAt(const Graph& graph, const ProofTrial& trial, uint64_t seed, DType dtype) {
  const MadeTensors tensors(seed);
  const StoredParams params(tensors);
  TWIN_ASSIGN_OR_RETURN(const NamedTensors outputs, Evaluate(graph, params, trial.inputs, {.dtype = dtype}));
  return outputs.begin()->second;
}

// The error of a typical token: the median over tokens of the largest in each. A token whose router chose
// another expert by a hair is another token, and no measure of rounding.
double MedianError(const Tensor& exact, const Tensor& rounded) {
  const int64_t width = std::max<int64_t>(exact.shape().back(), 1), tokens = exact.count() / width;
  double size = 0;
  std::vector<double> errors(tokens, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = t * width; i < (t + 1) * width; ++i) {
      size = std::max(size, std::abs(exact.data()[i]));
      errors[t] = std::max(errors[t], std::abs(exact.data()[i] - rounded.data()[i]));
    }
  }
  if (tokens == 0 || size == 0) return 0;
  std::nth_element(errors.begin(), errors.begin() + tokens / 2, errors.end());
  return errors[tokens / 2] / size;
}

// The type that the twin loses most in: that of most of its bytes, or a narrower one through which a weight
// has gone on its way to a wider.
DType NarrowestOf(const Graph& twin) {
  DType narrowest = DTypeOfMost(twin);
  for (const auto& [role, param] : twin.params()) {
    if (!IsFloat(param.type.dtype) || OnlyMoves(param.program)) continue;
    const DType dtype = NarrowestType(param.program);
    if (HalfUnit(dtype) > HalfUnit(narrowest)) narrowest = dtype;
  }
  return narrowest;
}

// How often a weight of the twin is rounded beyond the once that kMultipleOfOwnError allows for.
int64_t FurtherRoundings(const Graph& twin) {
  int64_t most = 1;
  for (const auto& [role, param] : twin.params())
    most = std::max(most, StatedRoundings(param.program).narrower_than_f64());
  return most - 1;
}

// The model with its blocks folded back. Primitives say the types that they compute in, so that a graph of
// them can't be computed in a narrower one; what they were lowered from can, and the algebra shows both to be
// one.
absl::StatusOr<Graph> Raised(Graph graph) {
  TransformStep step;
  step.mutable_raise_composites();
  TWIN_ASSIGN_OR_RETURN(const std::unique_ptr<Transform> raise, MakeTransform(step, {}));
  TWIN_RETURN_IF_ERROR(Apply(*raise, "raise", graph, nullptr, nullptr).status());
  return graph;
}

}  // namespace

absl::StatusOr<std::vector<RoundedTensor>> MeasureRounding(const std::vector<ManifestTensor>& tensors,
                                                           const TensorReader& reader) {
  std::vector<RoundedTensor> rounded;
  const auto measure = [&](std::string name, const WeightPtr& program) -> absl::Status {
    if (OnlyMoves(program) || !IsFloat(program->dtype())) return absl::OkStatus();
    TWIN_ASSIGN_OR_RETURN(RoundedTensor found, Measurer(std::move(name), program, reader).Run());
    rounded.push_back(std::move(found));
    return absl::OkStatus();
  };
  for (const ManifestTensor& tensor : tensors) {
    TWIN_RETURN_IF_ERROR(measure(tensor.name, tensor.program));
    for (const WeightPtr& operand : SelectedFrom(tensor.program))
      TWIN_RETURN_IF_ERROR(measure(absl::StrCat(tensor.name, " before its selection"), operand));
  }
  return rounded;
}

ThreeWay CompareThreeWays(const Graph& source, const Graph& twin, uint64_t seed) {
  ThreeWay found;
  const DType dtype = NarrowestOf(twin);
  found.dtype = std::string(Name(dtype));
  found.multiple = kMultipleOfOwnError + static_cast<double>(FurtherRoundings(twin));
  const auto fail = [&](const absl::Status& status) {
    found.reason = std::string(status.message());
    return found;
  };
  const absl::StatusOr<std::vector<ProofTrial>> trials = TrialsFor(source, twin, seed);
  if (!trials.ok()) return fail(trials.status());
  const absl::StatusOr<Tensor> exact = OutputAt(source, trials->front(), seed, DType::kF64);
  const absl::StatusOr<Tensor> own = OutputAt(source, trials->front(), seed, dtype);
  const absl::StatusOr<Graph> raised = Raised(twin);
  if (!raised.ok()) return fail(raised.status());
  const absl::StatusOr<Tensor> twins = OutputAt(*raised, trials->front(), seed, dtype);
  for (const auto* value : {&exact, &own, &twins}) {
    if (!value->ok()) return fail(value->status());
  }
  if (twins->shape() != exact->shape())
    return fail(absl::InvalidArgumentError("the outputs differ in extent"));
  found.source_error = MedianError(*exact, *own);
  found.twin_error = MedianError(*exact, *twins);
  const bool within = found.twin_error <= found.multiple * found.source_error + kSameInRealArithmetic;
  found.verdict = within ? Verdict::kProven : Verdict::kRefuted;
  if (!within) {
    found.reason = absl::StrCat("in ", found.dtype, " the twin is off by ", found.twin_error,
                                " of the largest output, the source itself by ", found.source_error);
  }
  return found;
}

}  // namespace twinforge
