#include "proof/rounding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "eval/evaluate.h"
#include "eval/retype.h"
#include "proof/algebra.h"
#include "proof/inputs.h"
#include "proof/values.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr int64_t kElementsAtOnce = 1 << 20;

// The smallest normal number of a dtype; below it a code's steps are all the same.
double SmallestNormal(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-1022;
    case DType::kF32:
    case DType::kBF16:
      return 0x1p-126;
    case DType::kF16:
      return 0x1p-14;
    default:
      return 0x1p-6;  // 8-bit floats with four bits of exponent
  }
}

std::vector<double> Doubles(DType dtype, const std::vector<std::byte>& bytes, int64_t count) {
  std::vector<double> values(count);
  Convert(dtype, bytes.data(), DType::kF64, reinterpret_cast<std::byte*>(values.data()), count);
  return values;
}

// Half a unit in the last place of 1, for each dtype that programs compute in.
double HalfUnit(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0x1p-3;
  }
}

// Verbs of a program that compute, one after the other at most.
int64_t Roundings(const WeightPtr& w) {
  int64_t most = 0;
  for (const WeightPtr& child : w->children()) most = std::max(most, Roundings(child));
  const bool computes = w->kind() == WeightKind::kCast || w->kind() == WeightKind::kMap ||
                        w->kind() == WeightKind::kContract || w->kind() == WeightKind::kGroup;
  return most + (computes ? 1 : 0);
}

class Measurer {
 public:
  Measurer(const ManifestTensor& tensor, const TensorReader& reader, double bound)
      : tensor_(tensor),
        stored_(tensor.program),
        exact_(Unrounded(tensor.program)),
        reader_(reader),
        bound_(bound > 0 ? bound : static_cast<double>(Roundings(stored_)) * HalfUnit(stored_->dtype())) {
    found_.name = tensor.name;
  }

  absl::StatusOr<RoundedTensor> Run() {
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
      TWIN_ASSIGN_OR_RETURN(const std::vector<double> stored, Values(stored_, box));
      TWIN_ASSIGN_OR_RETURN(const std::vector<double> exact, Values(exact_, box));
      for (size_t i = 0; i < stored.size(); ++i) Look(stored[i], exact[i]);
    }
    found_.mean = looked_ == 0 ? 0 : sum_ / static_cast<double>(looked_);
    return std::move(found_);
  }

 private:
  absl::StatusOr<std::vector<double>> Values(const WeightPtr& program, const Box& box) {
    const int64_t count = ElementCount(box.size);
    std::vector<std::byte> bytes(count * ElementBytes(program->dtype()));
    TWIN_RETURN_IF_ERROR(Read(program, box, reader_, bytes.data(), scratch_));
    return Doubles(program->dtype(), bytes, count);
  }

  void Look(double stored, double exact) {
    if (!std::isfinite(exact) && !std::isfinite(stored)) return;  // it was no number before
    const double normal = SmallestNormal(stored_->dtype());
    const double lost = std::abs(stored - exact);
    const double part = std::abs(exact) < normal ? lost / normal : lost / std::abs(exact);
    ++looked_;
    sum_ += part;
    found_.largest = std::max(found_.largest, part);
    if (part <= bound_ || !found_.within) return;
    found_.within = false;
    found_.detail = absl::StrCat("an element is ", exact, " in real arithmetic and ", stored, " stored");
  }

  const ManifestTensor& tensor_;
  const WeightPtr stored_, exact_;
  const TensorReader& reader_;
  const double bound_;
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

}  // namespace

absl::StatusOr<std::vector<RoundedTensor>> MeasureRounding(const std::vector<ManifestTensor>& tensors,
                                                           const TensorReader& reader, double bound) {
  std::vector<RoundedTensor> rounded;
  for (const ManifestTensor& tensor : tensors) {
    if (OnlyMoves(tensor.program) || !IsFloat(tensor.program->dtype())) continue;
    TWIN_ASSIGN_OR_RETURN(RoundedTensor found, Measurer(tensor, reader, bound).Run());
    rounded.push_back(std::move(found));
  }
  return rounded;
}

ThreeWay CompareThreeWays(const Graph& source, const Graph& twin, uint64_t seed) {
  ThreeWay found;
  const DType dtype = DTypeOfMost(twin);
  found.dtype = std::string(Name(dtype));
  const auto fail = [&](const absl::Status& status) {
    found.reason = std::string(status.message());
    return found;
  };
  const absl::StatusOr<std::vector<ProofTrial>> trials = TrialsFor(source, seed);
  if (!trials.ok()) return fail(trials.status());
  const absl::StatusOr<Tensor> exact = OutputAt(source, trials->front(), seed, DType::kF64);
  const absl::StatusOr<Tensor> own = OutputAt(source, trials->front(), seed, dtype);
  const absl::StatusOr<Tensor> twins = OutputAt(twin, trials->front(), seed, dtype);
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
