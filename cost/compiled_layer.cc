#include "cost/compiled_layer.h"

#include <string>
#include <vector>

#include "cost/shape.h"

namespace twinforge {
namespace {

constexpr int64_t kLanes = 128;
constexpr int64_t kBits = 16;  // bf16

struct Kernel {
  enum class Use : uint8_t { kQuery, kKey, kValue, kOther };
  int64_t in = 0;
  int64_t out = 0;
  int64_t count = 1;  // experts
  bool in_out = false;
  bool expert = false;
  Use use = Use::kOther;
};

struct Placed {
  double bytes = 0;
  bool out_lanes = false;
};

// In the order of dims that pads least; of equals the row-major one.
Placed Place(const Kernel& kernel, int64_t bits) {
  std::vector<int64_t> shape = {kernel.out, kernel.in};
  if (kernel.in_out) shape = {kernel.in, kernel.out};
  if (kernel.count > 1) shape.insert(shape.begin(), kernel.count);
  const int64_t best = PaddedBytes(bits, shape).value();
  if (RowMajorBytes(bits, shape).value() == best) {
    return {static_cast<double>(best), kernel.in_out};
  }
  std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
  const bool turned = RowMajorBytes(bits, shape).value() == best;
  return {static_cast<double>(best), turned ? !kernel.in_out : kernel.in_out};
}

std::vector<Kernel> KernelsOf(const CompiledForm& form) {
  const CompiledShape& s = form.shape;
  if (s.vocab > 0) return {{.in = s.d_model, .out = s.vocab, .in_out = form.rest_in_out}};
  const int64_t q = s.heads * s.head_dim;
  const int64_t kv = s.kv_heads * s.head_dim;
  std::vector<Kernel> all;
  if (form.fused_qkv) {
    all.push_back({.in = s.d_model, .out = q + 2 * kv, .in_out = form.qkv_in_out});
  } else {
    all.push_back({.in = s.d_model, .out = q, .in_out = form.qkv_in_out, .use = Kernel::Use::kQuery});
    all.push_back({.in = s.d_model, .out = kv, .in_out = form.qkv_in_out, .use = Kernel::Use::kKey});
    all.push_back({.in = s.d_model, .out = kv, .in_out = form.qkv_in_out, .use = Kernel::Use::kValue});
  }
  all.push_back({.in = q, .out = s.d_model, .in_out = form.rest_in_out});
  const int64_t count = form.one_wide_expert ? 1 : s.experts;
  const int64_t width = form.one_wide_expert ? s.d_ff * s.experts : s.d_ff;
  const auto add = [&](int64_t in, int64_t out) {
    all.push_back(
        {.in = in, .out = out, .count = count, .in_out = form.rest_in_out, .expert = s.experts > 1});
  };
  if (s.gated && form.fused_gate_up) {
    add(s.d_model, 2 * width);
  } else {
    add(s.d_model, width);
    if (s.gated) add(s.d_model, width);
  }
  add(width, s.d_model);
  return all;
}

double& At(CompiledTerms& terms, CompiledTerm term) { return terms[static_cast<int>(term)]; }

void AddKernel(const Kernel& kernel, const CompiledProduct& product, int64_t edge, CompiledTerms& terms) {
  const Placed placed = Place(kernel, product.weight_bits);
  At(terms, CompiledTerm::kProduct) += 1;
  At(terms, placed.out_lanes ? CompiledTerm::kOutLanes : CompiledTerm::kInLanes) += placed.bytes;
  if (kernel.expert) {
    At(terms, placed.out_lanes ? CompiledTerm::kExpertOutLanes : CompiledTerm::kExpertInLanes) +=
        placed.bytes;
  }
  const double elements = static_cast<double>(kernel.in) * kernel.out * kernel.count;
  const int64_t m = product.m;
  At(terms, CompiledTerm::kActivations) +=
      static_cast<double>(kernel.count) * m * (kernel.in + kernel.out) * 2;
  if (product.weight_bits < 16 && !product.native) At(terms, CompiledTerm::kConverted) += elements;
  if (m == 1) At(terms, CompiledTerm::kOneRow) += elements;
  if (m > kCompiledDecodeRows) {
    const Product rows = {.m = m, .k = kernel.in, .n = kernel.out, .count = kernel.count};
    const double streamed =
        static_cast<double>(SystolicRows(rows, {.edge = edge, .units = 1, .sublanes = 8}).value());
    At(terms, CompiledTerm::kMatrixRows) += streamed / (product.native ? 2 : 1);
  }
}

void AddDecodeAttention(const CompiledForm& form, const CompiledStep& step, CompiledTerms& terms) {
  const CompiledShape& s = form.shape;
  const double cache =
      2.0 * PaddedBytes(kBits, {step.sequences, s.kv_heads, step.context, s.head_dim}).value();
  const bool wide = s.head_dim >= kLanes;
  if (s.heads == s.kv_heads) {
    At(terms, wide ? CompiledTerm::kLoneCacheWide : CompiledTerm::kLoneCache) = cache;
  } else {
    At(terms, wide ? CompiledTerm::kSharedCacheWide : CompiledTerm::kSharedCache) = cache;
  }
  At(terms, CompiledTerm::kScores) = static_cast<double>(step.sequences) * s.heads * step.context;
  const double keys = static_cast<double>(step.sequences) * s.kv_heads * s.head_dim;
  if (s.head_dim % kLanes != 0) {
    At(terms, CompiledTerm::kNewKeys) = keys * (form.fused_qkv ? 1 : 2);
    At(terms, CompiledTerm::kNewQueries) = static_cast<double>(step.sequences) * s.heads * s.head_dim;
    return;
  }
  // Places before dims need no turning of the new ones; dims before places need most.
  switch (form.cache) {
    case CompiledForm::Cache::kHeadsPlacesDims:
      At(terms, CompiledTerm::kNewKeysWide) = keys;
      break;
    case CompiledForm::Cache::kPlacesHeadsDims:
      break;
    case CompiledForm::Cache::kHeadsDimsPlaces:
      At(terms, CompiledTerm::kNewKeysWide) = 4 * keys;
      break;
  }
}

void AddPrefillAttention(const CompiledForm& form, const CompiledStep& step, CompiledTerms& terms) {
  const CompiledShape& s = form.shape;
  const double tokens = static_cast<double>(step.sequences) * step.context;
  const double scores = tokens * step.context * s.heads;
  const int64_t padded =
      s.head_dim >= kLanes ? CeilDiv(s.head_dim, kLanes) * kLanes : CeilDiv(s.head_dim, 8) * 8;
  At(terms, CompiledTerm::kScores) = scores;
  At(terms, CompiledTerm::kScoreMacs) = scores * padded;
  if (form.fused_qkv) At(terms, CompiledTerm::kFusedQkv) = tokens * (s.heads + 2 * s.kv_heads) * s.head_dim;
  if (form.fused_gate_up) At(terms, CompiledTerm::kFusedGateUp) = tokens * s.d_ff * s.experts;
}

}  // namespace

absl::string_view Name(CompiledTerm term) {
  switch (term) {
    case CompiledTerm::kStep:
      return "step";
    case CompiledTerm::kProduct:
      return "product";
    case CompiledTerm::kOutLanes:
      return "out_lanes";
    case CompiledTerm::kInLanes:
      return "in_lanes";
    case CompiledTerm::kExpertOutLanes:
      return "expert_out_lanes";
    case CompiledTerm::kExpertInLanes:
      return "expert_in_lanes";
    case CompiledTerm::kTurnedWeights:
      return "turned_weights";
    case CompiledTerm::kTurnedKey:
      return "turned_key";
    case CompiledTerm::kMatrixRows:
      return "matrix_rows";
    case CompiledTerm::kOneRow:
      return "one_row";
    case CompiledTerm::kConverted:
      return "converted";
    case CompiledTerm::kLoneCache:
      return "lone_cache";
    case CompiledTerm::kLoneCacheWide:
      return "lone_cache_wide";
    case CompiledTerm::kSharedCache:
      return "shared_cache";
    case CompiledTerm::kSharedCacheWide:
      return "shared_cache_wide";
    case CompiledTerm::kScores:
      return "scores";
    case CompiledTerm::kScoreMacs:
      return "score_macs";
    case CompiledTerm::kNewKeys:
      return "new_keys";
    case CompiledTerm::kNewKeysWide:
      return "new_keys_wide";
    case CompiledTerm::kNewQueries:
      return "new_queries";
    case CompiledTerm::kActivations:
      return "activations";
    case CompiledTerm::kFusedQkv:
      return "fused_qkv";
    case CompiledTerm::kFusedGateUp:
      return "fused_gate_up";
  }
  return "";
}

CompiledTerms TermsOfLayer(const CompiledForm& form, const CompiledStep& step, int64_t edge) {
  CompiledTerms terms = {};
  const bool decode = step.phase == Phase::kDecode;
  const int64_t tokens = decode ? step.sequences : step.sequences * step.context;
  for (const Kernel& kernel : KernelsOf(form)) {
    AddKernel(kernel, {.m = tokens, .weight_bits = kBits}, edge, terms);
    if (kernel.use == Kernel::Use::kOther || form.compiler_layouts) continue;
    const Placed placed = Place(kernel, kBits);
    if (!placed.out_lanes) continue;
    At(terms, CompiledTerm::kTurnedWeights) += placed.bytes;
    if (kernel.use == Kernel::Use::kKey) At(terms, CompiledTerm::kTurnedKey) += placed.bytes;
  }
  if (form.shape.vocab > 0) return terms;
  At(terms, CompiledTerm::kStep) = 1;
  if (decode) {
    AddDecodeAttention(form, step, terms);
  } else {
    AddPrefillAttention(form, step, terms);
  }
  return terms;
}

CompiledTerms TermsOfProduct(const CompiledProduct& product, int64_t edge) {
  CompiledTerms terms = {};
  AddKernel({.in = product.k,
             .out = product.n,
             .count = product.count,
             .in_out = product.in_out,
             .expert = product.count > 1},
            product, edge, terms);
  return terms;
}

}  // namespace twinforge
