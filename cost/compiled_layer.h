// One decoder layer as the TPU compiler was given it, and what of it its cycle estimate counts.
//
// The layers of compiled/layers.csv are whole: q, k, v, scores against the cache (decode) or against
// themselves (prefill), o, feed-forward with all experts computed; weights in bf16 as arguments, nothing
// donated. A form says how the weights lie; the terms say how much of each kind of work that makes. Nothing
// here is fitted: what a unit of each term costs on a generation is compiled_cycles.h.
//
//   weights [out, in] of 4096 x 4096     33.5 MB along the lanes of `in`
//   the same of 4096 x 2880              the compiler turns it round, since 2880 pads: lanes of `out`
#ifndef TWINFORGE_COST_COMPILED_LAYER_H_
#define TWINFORGE_COST_COMPILED_LAYER_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "cost/score.h"

namespace twinforge {

struct CompiledShape {
  int64_t d_model = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t d_ff = 0;  // of one expert
  int64_t experts = 1;
  bool gated = true;
  int64_t vocab = 0;  // a head alone: [vocab, d_model], no layer
  bool operator==(const CompiledShape&) const = default;
};

struct CompiledForm {
  enum class Cache : uint8_t { kHeadsPlacesDims, kPlacesHeadsDims, kHeadsDimsPlaces };
  CompiledShape shape;
  bool qkv_in_out = false;   // stored [in, out]; else [out, in]
  bool rest_in_out = false;  // o, feed-forward, experts, head
  bool fused_qkv = false;
  bool fused_gate_up = false;
  bool one_wide_expert = false;  // all experts side by side in one product
  Cache cache = Cache::kHeadsPlacesDims;
  bool compiler_layouts = false;  // the compiler chose the layouts of the arguments too
};

// Decode: one new token for each of `sequences`, `context` places cached. Prefill: `context` tokens of each.
struct CompiledStep {
  Phase phase = Phase::kDecode;
  int64_t sequences = 8;
  int64_t context = 2048;
};

// Names are those of compiled/cycles.textproto.
enum class CompiledTerm : uint8_t {
  kStep,            // 1
  kProduct,         // weights that are multiplied, each once
  kOutLanes,        // bytes of weights whose `out` lies along the lanes
  kInLanes,         // bytes of weights whose `in` does: they are transposed on the way
  kExpertOutLanes,  // of those, bytes of experts
  kExpertInLanes,
  kTurnedWeights,  // bytes of q, k, v that lie with `out` along the lanes and are each split into heads
  kTurnedKey,      // of those, of k
  kMatrixRows,     // rows through one array, prefill (cost/shape.h)
  kOneRow,         // weights that a single row multiplies: the vector path
  kConverted,      // weights that a narrow type is widened from
  kLoneCache,      // bytes of cache where each kv head serves one query head, head_dim below 128
  kLoneCacheWide,  // the same from 128 on
  kSharedCache,    // where it serves several
  kSharedCacheWide,
  kScores,       // places times queries times heads
  kScoreMacs,    // scores times head_dim, prefill
  kNewKeys,      // new keys and values that are laid anew, head_dim no multiple of 128
  kNewKeysWide,  // the same, a multiple
  kNewQueries,   // queries that are laid anew
  kActivations,  // bytes of operands and results of the products
  kFusedQkv,     // results of fused products that are cut apart, prefill
  kFusedGateUp,
};
inline constexpr int kCompiledTermCount = 23;
absl::string_view Name(CompiledTerm term);

using CompiledTerms = std::array<double, kCompiledTermCount>;

// A layer, or a head where shape.vocab is set. `edge`: of the matrix unit.
// REQUIRES: positive sizes whose products stay below 2^53.
CompiledTerms TermsOfLayer(const CompiledForm& form, const CompiledStep& step, int64_t edge);

// One product alone: [m, k] x [k, n] of `count` pairs.
struct CompiledProduct {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  int64_t count = 1;
  int64_t weight_bits = 16;
  bool in_out = true;   // the second operand is stored [k, n], else [n, k]
  bool native = false;  // two 8-bit operands of a type that the matrix unit takes
};
// Products of more rows are counted like prefill, by the rows of the matrix unit too.
inline constexpr int64_t kCompiledDecodeRows = 64;
CompiledTerms TermsOfProduct(const CompiledProduct& product, int64_t edge);

}  // namespace twinforge

#endif  // TWINFORGE_COST_COMPILED_LAYER_H_
