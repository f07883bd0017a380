#include <algorithm>
#include <utility>
#include <vector>

#include "cost/count_node.h"

namespace twinforge {
namespace {

constexpr int64_t kStates = 3;  // master weights and two moments, each f32

// The gradient of the left operand: dy W^T, of queries dS K, of probabilities dO V^T.
Product LeftGradient(const Product& forward) {
  Product gradient = forward;
  std::swap(gradient.k, gradient.n);
  if (forward.kind == Product::Kind::kScores) gradient.kind = Product::Kind::kMix;
  if (forward.kind == Product::Kind::kMix) gradient.kind = Product::Kind::kScores;
  return gradient;
}

// The gradient of the right operand: x^T dy, of keys dS^T Q, of values P^T dO.
Product RightGradient(const Product& forward) {
  Product gradient = forward;
  gradient.m = forward.k;
  gradient.k = forward.m;
  if (forward.kind == Product::Kind::kScores) {
    // A pair's place in the scores meets each of the queries' columns.
    gradient = {.kind = Product::Kind::kMix, .m = forward.n, .k = forward.m, .n = forward.k};
  } else if (forward.kind == Product::Kind::kMix) {
    gradient = {.kind = Product::Kind::kMix, .m = forward.k, .k = forward.m, .n = forward.n};
  }
  gradient.count = forward.count;
  gradient.pairs = forward.pairs;
  gradient.left = forward.left;
  gradient.right = forward.left;  // both are activations
  gradient.attention = forward.attention;
  gradient.useful = forward.useful;
  return gradient;
}

Exact Elements(const StoredArray& array) {
  Exact elements = 1;
  for (const int64_t extent : array.shape) elements = elements * extent;
  return elements;
}

// One-dimensional, as optimisers and activation buffers lie.
StoredArray Flat(DType dtype, Exact elements) {
  return {dtype, {elements.ok() ? elements.value() : INT64_MAX}};
}

// The operands that gradients of parameters need: of products that share an input, one.
std::vector<StoredArray> SavedInside(const std::vector<Product>& products) {
  std::vector<StoredArray> saved;
  std::vector<int64_t> widths;
  for (const Product& product : products) {
    if (product.attention || std::find(widths.begin(), widths.end(), product.k) != widths.end()) continue;
    widths.push_back(product.k);
    saved.push_back(Flat(product.left, Exact(product.m) * product.k * product.count));
  }
  return saved;
}

void AddProducts(bool again, std::vector<Product>& products) {
  std::vector<Product> all;
  for (const Product& forward : products) {
    all.push_back(forward);
    all.push_back(LeftGradient(forward));
    all.push_back(RightGradient(forward));
    if (!again) continue;
    all.push_back(forward);
    all.back().useful = 0;  // computed again: needed by no one but this choice
  }
  products = std::move(all);
}

// A device keeps its share of parameters, gradients and states; each step reads and writes all of the states.
void AddOptimiser(const Workload& workload, NodeCount& count) {
  const int64_t dp = workload.dp * workload.sp;
  const int64_t slices = (workload.dcn.dp ? workload.dp : 1) * (workload.dcn.sp ? workload.sp : 1);
  for (std::vector<StoredArray>& arrays : count.stored) {
    const StoredArray parameter = arrays[0];
    const Exact elements = Elements(parameter);
    const Exact own = elements.ok() ? Exact(CeilDiv(elements.value(), dp)) : elements;
    arrays = {Flat(parameter.dtype, own), Flat(parameter.dtype, own), Flat(DType::kF32, own * kStates)};
    count.updated.push_back({Flat(DType::kF32, own * (2 * kStates)), Flat(parameter.dtype, own)});
    if (dp == 1) continue;
    // Gathered for forward and backward; gradients scattered, which moves as much.
    const Exact bytes = own.ok() ? CompactBytes(parameter.dtype, {own.value()}) : own;
    for (int i = 0; i < 3; ++i)
      count.collectives.push_back({Collective::Kind::kAllGather, bytes, dp, slices});
  }
}

}  // namespace

void MakeTraining(const Workload& workload, bool keeps, NodeCount& count) {
  const bool again = workload.training->rematerialise;
  std::vector<StoredArray> saved;
  if (again ? keeps : !count.products.empty()) {
    for (const Exact& operand : count.operand_bytes) saved.push_back(Flat(DType::kU8, operand));
  }
  if (!again) {
    for (StoredArray& inside : SavedInside(count.products)) saved.push_back(std::move(inside));
  }
  AddProducts(again, count.products);
  // Read for the gradients of what came in as well, and where blocks run again.
  const std::vector<StoredArray> once = count.weights;
  for (int pass = 1; pass < (again ? 3 : 2); ++pass)
    count.weights.insert(count.weights.end(), once.begin(), once.end());
  const std::vector<Collective> forward = count.collectives;
  for (int pass = 1; pass < (again ? 3 : 2); ++pass)
    count.collectives.insert(count.collectives.end(), forward.begin(), forward.end());
  AddOptimiser(workload, count);
  count.cache_read = saved;
  count.cache_kept = saved;
  count.state = false;
  count.cache_written = 0;
  for (const StoredArray& array : saved) count.cache_written += CompactBytes(array.dtype, array.shape);
}

}  // namespace twinforge
