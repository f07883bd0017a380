// ai.onnx.ml: what classical models are made of.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

constexpr char kMl[] = "ai.onnx.ml";

void Binarizer(OpCall& c) {
  const double threshold = c.Float("threshold", 0);
  std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, true, "");
  for (double& v : x) v = v > threshold ? 1 : 0;
  c.Out(0, TensorOf<double>(c.In(0).type(), c.In(0).shape(), x));
}

// A list of keys or values in any of its spellings: keys_tensor, keys_strings, keys_int64s, keys_floats.
std::optional<OnnxTensor> ListOf(OpCall& c, const std::string& name) {
  if (std::optional<OnnxTensor> tensor = c.TensorAttr(name + "_tensor"))
    return tensor->WithShape({tensor->count()});
  if (c.HasAttr(name + "_strings")) {
    std::vector<std::string> strings = c.StrsAttr(name + "_strings");
    return OnnxTensor({static_cast<int64_t>(strings.size())}, strings);
  }
  if (c.HasAttr(name + "_int64s")) return Int64Tensor(c.IntsAttr(name + "_int64s"));
  if (!c.HasAttr(name + "_floats")) return std::nullopt;
  const std::vector<double> floats = c.FloatsAttr(name + "_floats");
  return TensorOf<double>(ElementType::kFloat, {static_cast<int64_t>(floats.size())}, floats);
}

// Where each element of `x` stands among the keys; the last of equal ones, -1 for none. NaN equals NaN.
template <typename T>
std::vector<int64_t> Lookup(const std::vector<T>& keys, const std::vector<T>& x) {
  std::map<T, int64_t> index;
  int64_t nan = -1;
  for (size_t k = 0; k < keys.size(); ++k) {
    if (keys[k] != keys[k]) {
      nan = static_cast<int64_t>(k);
    } else {
      index[keys[k]] = static_cast<int64_t>(k);
    }
  }
  std::vector<int64_t> at;
  for (const T& v : x) {
    const auto found = v != v ? index.end() : index.find(v);
    at.push_back(v != v ? nan : found == index.end() ? -1 : found->second);
  }
  return at;
}

void LabelEncoder(OpCall& c) {
  const std::optional<OnnxTensor> keys = ListOf(c, "keys"), values = ListOf(c, "values");
  if (c.opset() < 2) return c.Refuse("version 1 has no meaning here");
  ONNX_EXPECT(c, keys && values && keys->count() == values->count(), "keys and values are not as many");
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, keys->type() == x.type(), "the keys are of another type than the input");
  OnnxTensor absent = values->is_string() ? OnnxTensor({}, {c.Str("default_string", "_Unused")})
                      : IsIntegerElement(values->type())
                          ? ScalarOf(values->type(), static_cast<double>(c.Int("default_int64", -1)))
                          : ScalarOf(values->type(), c.Float("default_float", -0.0));
  if (const std::optional<OnnxTensor> given = c.TensorAttr("default_tensor")) {
    ONNX_EXPECT(c, given->count() == 1 && given->type() == values->type(), "default_tensor is no value");
    absent = *given;
  }
  std::vector<int64_t> at;
  if (x.is_string()) at = Lookup(keys->strings(), x.strings());
  WithCarrier(x.type(),
              [&](auto zero) { at = Lookup(Elements<decltype(zero)>(*keys), Elements<decltype(zero)>(x)); });
  std::vector<int32_t> which;
  for (int64_t& from : at) {
    which.push_back(from < 0 ? 1 : 0);
    from = std::max<int64_t>(from, 0);
  }
  ONNX_EXPECT(c, static_cast<int64_t>(at.size()) == x.count(), "takes numbers or strings");
  c.Out(0, TakeElements({*values, absent}, x.shape(), which, at));
}

// ---- trees

struct Forest {
  std::vector<int64_t> features, true_nodes, false_nodes, true_leafs, false_leafs, targets, roots, missing;
  std::vector<double> splits, weights, modes;
  std::vector<std::set<double>> members;  // of each node
};

std::vector<double> DoublesOf(OpCall& c, const char* name) {
  const std::optional<OnnxTensor> tensor = c.TensorAttr(name);
  if (tensor && !tensor->is_string()) return Elements<double>(*tensor);
  return {};
}

// Every node's branches lead to nodes or leaves that there are.
bool IsSound(const Forest& f, int64_t features) {
  const size_t n = f.features.size();
  if (f.true_nodes.size() != n || f.false_nodes.size() != n || f.true_leafs.size() != n ||
      f.false_leafs.size() != n || f.splits.size() != n || f.modes.size() != n ||
      f.targets.size() != f.weights.size()) {
    return false;
  }
  const auto leads = [&](int64_t to, int64_t leaf) {
    return to >= 0 && to < static_cast<int64_t>(leaf != 0 ? f.weights.size() : n);
  };
  for (size_t k = 0; k < n; ++k) {
    if (f.features[k] < 0 || f.features[k] >= features || !leads(f.true_nodes[k], f.true_leafs[k]) ||
        !leads(f.false_nodes[k], f.false_leafs[k]))
      return false;
  }
  return std::all_of(f.roots.begin(), f.roots.end(),
                     [&](int64_t r) { return r >= 0 && r < static_cast<int64_t>(n); });
}

bool Holds(const Forest& f, int64_t node, double x) {
  if (std::isnan(x) && !f.missing.empty() && f.missing[node] != 0) return true;
  const double split = f.splits[node];
  switch (static_cast<int>(f.modes[node])) {
    case 0:
      return x <= split;
    case 1:
      return x < split;
    case 2:
      return x >= split;
    case 3:
      return x > split;
    case 4:
      return x == split;
    case 5:
      return x != split;
    default:
      return f.members[node].count(x) != 0;
  }
}

// The leaf that a row falls into, or -1 where nodes lead in a circle.
int64_t LeafOf(const Forest& f, int64_t node, const double* row) {
  for (size_t steps = 0; steps <= f.features.size(); ++steps) {
    const bool holds = Holds(f, node, row[f.features[node]]);
    const bool leaf = (holds ? f.true_leafs : f.false_leafs)[node] != 0;
    node = (holds ? f.true_nodes : f.false_nodes)[node];
    if (leaf) return node;
  }
  return -1;
}

Forest ForestOf(OpCall& c) {
  Forest f;
  f.features = c.IntsAttr("nodes_featureids");
  f.true_nodes = c.IntsAttr("nodes_truenodeids");
  f.false_nodes = c.IntsAttr("nodes_falsenodeids");
  f.true_leafs = c.IntsAttr("nodes_trueleafs");
  f.false_leafs = c.IntsAttr("nodes_falseleafs");
  f.targets = c.IntsAttr("leaf_targetids");
  f.roots = c.IntsAttr("tree_roots");
  f.missing = c.IntsAttr("nodes_missing_value_tracks_true");
  f.splits = DoublesOf(c, "nodes_splits");
  f.weights = DoublesOf(c, "leaf_weights");
  f.modes = DoublesOf(c, "nodes_modes");
  f.members.resize(f.features.size());
  if (!f.missing.empty() && f.missing.size() != f.features.size())
    c.Fail("nodes_missing_value_tracks_true is not one for each node");
  const std::vector<double> members = DoublesOf(c, "membership_values");  // sets, each closed by NaN
  size_t at = 0;
  for (size_t node = 0; node < std::min(f.modes.size(), f.members.size()); ++node) {
    if (f.modes[node] != 6) continue;
    while (at < members.size() && !std::isnan(members[at])) f.members[node].insert(members[at++]);
    if (at++ >= members.size()) c.Fail("membership_values has too few sets");
  }
  return f;
}

void TreeEnsemble(OpCall& c) {
  const Forest f = ForestOf(c);
  const int64_t targets = c.Int("n_targets", 1), aggregate = c.Int("aggregate_function", 1),
                after = c.Int("post_transform", 0);
  const std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, c.In(0).rank() == 2 && aggregate >= 0 && aggregate <= 3 && IsSound(f, c.In(0).dim(1)),
              "its trees are not sound");
  if (after != 0) return c.Refuse("post_transform has no meaning here");
  const int64_t rows = c.In(0).dim(0), width = c.In(0).dim(1);
  ONNX_EXPECT(c, c.Affordable({rows, targets}), "");
  const double most =
      RoundedTo(c.In(0).type(), c.In(0).type() == ElementType::kDouble ? std::numeric_limits<double>::max()
                                                                       : 3.4028234663852886e38);
  std::vector<double> y(static_cast<size_t>(rows * targets), aggregate == 2   ? most
                                                             : aggregate == 3 ? -most
                                                                              : 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (const int64_t root : f.roots) {
      const int64_t leaf = LeafOf(f, root, x.data() + row * width);
      ONNX_EXPECT(c, leaf >= 0 && f.targets[leaf] >= 0 && f.targets[leaf] < targets, "a tree leads nowhere");
      double& v = y[row * targets + f.targets[leaf]];
      const double w = f.weights[leaf];
      v = aggregate == 0   ? v + w / static_cast<double>(f.roots.size())
          : aggregate == 1 ? v + w
          : aggregate == 2 ? std::min(v, w)
                           : std::max(v, w);
    }
  }
  c.Out(0, TensorOf<double>(c.In(0).type(), {rows, targets}, y));
}

// ---- columns of features

// (x - offset) * scale, one of each for all columns or for each.
void Scaler(OpCall& c) {
  std::vector<double> x = c.Doubles(0);
  const std::vector<double> offset = c.FloatsAttr("offset", {0}), scale = c.FloatsAttr("scale", {1});
  ONNX_EXPECT(c, c.In(0).rank() > 0, "takes no scalar");
  const size_t width = static_cast<size_t>(c.In(0).shape().back());
  ONNX_EXPECT(c,
              (offset.size() == 1 || offset.size() == width) && (scale.size() == 1 || scale.size() == width),
              "offset or scale is not one for each column");
  for (size_t k = 0; k < x.size(); ++k)
    x[k] = (x[k] - offset[k % width % offset.size()]) * scale[k % width % scale.size()];
  c.Out(0, TensorOf<double>(ElementType::kFloat, c.In(0).shape(), x));
}

void Normalizer(OpCall& c) {
  std::vector<double> x = c.Doubles(0);
  const std::string norm = c.Str("norm", "MAX");
  ONNX_EXPECT(c, c.In(0).rank() > 0 && (norm == "MAX" || norm == "L1" || norm == "L2"), "knows no such norm");
  const int64_t width = c.In(0).shape().back();
  for (int64_t row = 0; width > 0 && row < static_cast<int64_t>(x.size()) / width; ++row) {
    double* at = x.data() + row * width;
    double size = 0;
    for (int64_t i = 0; i < width; ++i)
      size = norm == "MAX" ? std::max(size, std::fabs(at[i]))
                           : size + (norm == "L1" ? std::fabs(at[i]) : at[i] * at[i]);
    if (norm == "L2") size = std::sqrt(size);
    for (int64_t i = 0; i < width; ++i) at[i] = size == 0 ? 0 : at[i] / size;
  }
  c.Out(0, TensorOf<double>(ElementType::kFloat, c.In(0).shape(), x));
}

// What equals replaced_value (NaN equals NaN) becomes the imputed value of its column.
void Imputer(OpCall& c) {
  std::vector<double> x = c.Doubles(0);
  const bool floats = c.HasAttr("imputed_value_floats");
  std::vector<double> values = c.FloatsAttr("imputed_value_floats");
  for (const int64_t v : c.IntsAttr("imputed_value_int64s")) values.push_back(static_cast<double>(v));
  const double replaced =
      floats ? c.Float("replaced_value_float", 0) : static_cast<double>(c.Int("replaced_value_int64", 0));
  ONNX_EXPECT(c, c.In(0).rank() > 0, "takes no scalar");
  const size_t width = static_cast<size_t>(c.In(0).shape().back());
  ONNX_EXPECT(c, values.size() == 1 || values.size() == width, "imputed values are not one for each column");
  for (size_t k = 0; k < x.size(); ++k) {
    if (x[k] == replaced || (std::isnan(x[k]) && std::isnan(replaced)))
      x[k] = values[k % width % values.size()];
  }
  c.Out(0, TensorOf<double>(c.In(0).type(), c.In(0).shape(), x));
}

constexpr KernelRow kRows[] = {
    {"Binarizer", Binarizer, false, kMl},       {"LabelEncoder", LabelEncoder, false, kMl},
    {"TreeEnsemble", TreeEnsemble, false, kMl}, {"Scaler", Scaler, false, kMl},
    {"Normalizer", Normalizer, false, kMl},     {"Imputer", Imputer, false, kMl},
};

}  // namespace

absl::Span<const KernelRow> ClassicKernels() { return kRows; }

}  // namespace twinforge
