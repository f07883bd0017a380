// Recurrences, spectra, text, trees, random numbers.
#include <algorithm>

#include "onnx/infer/rule.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

// x [time, batch, input], w, r [directions, gates * hidden, hidden]; batch first where layout is 1.
void RecurrentRule(InferCall& c) {
  for (int i = 0; i < 3; ++i) c.Out(i).type = c.In(0).type;
  const bool batch_first = c.Int("layout", 0) != 0;
  const KnownDim time = c.In(0).Extent(batch_first ? 1 : 0), batch = c.In(0).Extent(batch_first ? 0 : 1);
  const KnownDim directions = Dim(c.Str("direction", "forward") == "bidirectional" ? 2 : 1);
  KnownDim hidden = c.In(2).Extent(2);
  if (c.HasAttr("hidden_size")) c.Meet(hidden, Dim(c.Int("hidden_size", 0)), "hidden_size differs");
  c.Out(0).shape =
      batch_first ? KnownDims{batch, time, directions, hidden} : KnownDims{time, directions, batch, hidden};
  c.Out(1).shape = batch_first ? KnownDims{batch, directions, hidden} : KnownDims{directions, batch, hidden};
  c.Out(2).shape = c.Out(1).shape;
}

// Axis and length are inputs, the axis since operator set 20.
void DftRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const std::optional<int64_t> given = c.opset() < 20 ? c.Int("axis", 1) : c.ScalarNumber(2, -2);
  out.shape = KnownDims(static_cast<size_t>(*rank));
  const bool inverse = c.Int("inverse", 0) != 0, onesided = c.Int("onesided", 0) != 0;
  const bool folded = inverse && onesided;  // half a spectrum to real numbers
  const std::optional<int64_t> axis = given ? c.Axis(*given, *rank) : std::nullopt;
  if (!axis) return;
  out.shape = c.In(0).shape;
  out.shape->back() = Dim(folded ? 1 : 2);
  const KnownDim in = c.In(0).Extent(*axis),
                 natural = folded ? DimProduct(DimDifference(in, Dim(1)), Dim(2)) : in,
                 length = c.Has(1) ? c.Scalar(1) : natural;
  (*out.shape)[*axis] = onesided && !inverse ? DimSum(DimFloor(length, 2), Dim(1)) : length;
}

// signal [batch, length, 1 or 2], frame_step, window, frame_length -> [batch, frames, bins, 2].
void StftRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  const KnownDim length = c.Has(3) ? c.Scalar(3) : c.In(2).Extent(0);
  const std::optional<int64_t> step = c.ScalarNumber(1);
  const KnownDim frames =
      step ? DimSum(DimFloor(DimDifference(c.In(0).Extent(1), length), *step), Dim(1)) : std::nullopt;
  const KnownDim bins = c.Int("onesided", 1) != 0 ? DimSum(DimFloor(length, 2), Dim(1)) : length;
  c.Out(0).shape = KnownDims{c.In(0).Extent(0), frames, bins, Dim(2)};
}

void WindowRule(InferCall& c) {
  c.Out(0).type = c.TypeAttr("output_datatype", ElementType::kFloat);
  c.Out(0).shape = KnownDims{c.Scalar(0)};
}

void MelWeightMatrixRule(InferCall& c) {
  c.Out(0).type = c.TypeAttr("output_datatype", ElementType::kFloat);
  c.Out(0).shape = KnownDims{DimSum(DimFloor(c.Scalar(1), 2), Dim(1)), c.Scalar(0)};
}

// ---- text

void StringNormalizerRule(InferCall& c) {
  c.Out(0).type = ElementType::kString;
  c.Out(0).shape = c.In(0).shape;
  if (c.Out(0).shape && !c.Out(0).shape->empty()) c.Out(0).shape->back().reset();
}

void StringSplitRule(InferCall& c) {
  c.Out(0).type = ElementType::kString;
  c.Out(1).type = ElementType::kInt64;
  c.Out(0).shape = c.Out(1).shape = c.In(0).shape;
  if (c.Out(0).shape) c.Out(0).shape->push_back(KnownDim());
}

void TfIdfVectorizerRule(InferCall& c) {
  c.Out(0).type = ElementType::kFloat;
  const std::vector<int64_t> indexes = c.Ints("ngram_indexes").value_or(std::vector<int64_t>());
  KnownDim width = Dim(0);
  for (const int64_t index : indexes) width = DimMax(width, DimSum(Dim(index), Dim(1)));
  if (c.In(0).Rank() == 1) c.Out(0).shape = KnownDims{width};
  if (c.In(0).Rank() == 2) c.Out(0).shape = KnownDims{c.In(0).Extent(0), width};
}

// ---- ai.onnx.ml

void LabelEncoderRule(InferCall& c) {
  c.Out(0).shape = c.In(0).shape;
  const ::onnx::AttributeProto* tensor = c.Attr("values_tensor");
  if (tensor != nullptr) c.Out(0).type = ElementTypeFromCode(tensor->t().data_type());
  if (c.HasAttr("values_int64s")) c.Out(0).type = ElementType::kInt64;
  if (c.HasAttr("values_floats")) c.Out(0).type = ElementType::kFloat;
  if (c.HasAttr("values_strings")) c.Out(0).type = ElementType::kString;
}

void TreeEnsembleRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  c.Out(0).shape = KnownDims{c.In(0).Extent(0), Dim(c.Int("n_targets", 1))};
}

// ---- random numbers: without a kernel, not without a shape

void RandomLikeRule(InferCall& c) {
  c.Out(0).type = c.TypeAttr("dtype", c.In(0).type);
  c.Out(0).shape = c.In(0).shape;
}

void RandomRule(InferCall& c) {
  c.Out(0).type = c.TypeAttr("dtype", ElementType::kFloat);
  const std::vector<int64_t> shape = c.Ints("shape").value_or(std::vector<int64_t>());
  c.Out(0).shape.emplace(shape.begin(), shape.end());
}

constexpr char kMl[] = "ai.onnx.ml";
constexpr InferRow kRows[] = {
    {"RNN", RecurrentRule},
    {"GRU", RecurrentRule},
    {"LSTM", RecurrentRule},
    {"DFT", DftRule},
    {"STFT", StftRule},
    {"HannWindow", WindowRule},
    {"HammingWindow", WindowRule},
    {"BlackmanWindow", WindowRule},
    {"MelWeightMatrix", MelWeightMatrixRule},
    {"StringNormalizer", StringNormalizerRule},
    {"StringSplit", StringSplitRule},
    {"TfIdfVectorizer", TfIdfVectorizerRule},
    {"LabelEncoder", LabelEncoderRule, kMl},
    {"TreeEnsemble", TreeEnsembleRule, kMl},
    {"Bernoulli", RandomLikeRule},
    {"RandomNormalLike", RandomLikeRule},
    {"RandomUniformLike", RandomLikeRule},
    {"RandomNormal", RandomRule},
    {"RandomUniform", RandomRule},
};

}  // namespace

absl::Span<const InferRow> SignalRules() { return kRows; }

}  // namespace twinforge
