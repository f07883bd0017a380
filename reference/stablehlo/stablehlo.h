// A graph as StableHLO text: one module for one size of batch, sequence and cache.
//
//   WriteStableHlo(graph, {.phase = StableHloPhase::kDecode, .batch = 8, .context = 2048})
//
//   func.func public @main(%tokens: tensor<8x1xi32>, %position: tensor<i32>, %starts: tensor<8xi32>,
//                          %layers.0.attn.k: tensor<8x2048x2x64xbf16> {tf.aliasing_output = 1 : i32}, ...
//                          %embed: tensor<32000x512xbf16>, ...) -> (tensor<8x1x32000xbf16>, ...)
//
// Weights are arguments, each as its tensor lies in the twin's native layout; a manifest says which is which.
// Blocks are functions, one for all layers that are alike; attention and mixtures of experts are
// `stablehlo.composite`, so that a runtime may put a kernel of its own in their place. Inside is the block's
// own decomposition (ir/decompose.h), with products taken as the weights lie.
//
// A cache has `context` places. A call writes those of its tokens at `position` and returns the whole,
// donated. Sequences of a batch end together: row b of `tokens` is padding before place starts[b] of the
// cache, its first token is there, and no real token sees padding.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_STABLEHLO_H_
#define TWINFORGE_REFERENCE_STABLEHLO_STABLEHLO_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "reference/kept_groups.h"

namespace twinforge {

enum class StableHloPhase {
  kPrefill,  // sequences from their first token on: no cache comes in
  kDecode,   // tokens that continue what a cache holds
};

enum class StableHloLogits {
  kEach,  // of every new token
  kLast,  // of the last one: what generation asks of a prefill
};

struct StableHloOptions {
  StableHloPhase phase = StableHloPhase::kPrefill;
  int64_t batch = 1;
  int64_t sequence = 1;        // new tokens of each row
  int64_t context = 0;         // places of the cache; 0: as many as `sequence`
  std::optional<DType> dtype;  // computes in f32, bf16, f16 or f64; unset: as the weights are stored
  StableHloLogits logits = StableHloLogits::kEach;
  // By role, for a twin that was forged: weights of which few are kept, which its programs no longer show.
  std::map<std::string, KeptGroups> kept;
};

struct StableHloArgument {
  enum class Kind { kInput, kCache, kWeight };
  std::string name;  // "tokens", "layers.0.attn.k", the twin tensor's name "layers.0.attn.qkv"
  Kind kind = Kind::kInput;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::string>
      split;          // of each axis: the mesh's axis over which devices split it; "": each has all
  WeightPtr program;  // kWeight: how it is made of the stored tensors that the model was read from
  std::vector<std::string> roles;  // kWeight: the parameters in it
  int64_t result = -1;             // kCache in kDecode: the result that takes its place
};

// "input", "cache", "weight".
absl::string_view StableHloKindName(StableHloArgument::Kind kind);

struct StableHloResult {
  std::string name;  // "logits", "layers.0.attn.k"
  DType dtype = DType::kF32;
  Shape shape;
};

struct StableHloModule {
  std::string name;  // "llama.decode.b8.s1.c2048"
  std::string text;
  std::vector<StableHloArgument> arguments;  // in the order of @main's
  std::vector<StableHloResult> results;
  // Axes of the devices that split the weights, {"model", 8}: the graph's shards. Empty: one device.
  std::vector<std::pair<std::string, int64_t>> mesh;
};

// TF1620 where the graph holds what cannot be said (an imported op, complex numbers), or asks for a decode
// step of what remembers nothing; TF1621 for sizes that do not fit each other.
absl::StatusOr<StableHloModule> WriteStableHlo(const Graph& graph, const StableHloOptions& options);

// A part of the model by itself, for what can only be asked of a part: a compiler's estimate hides what is in
// loops, and a whole model takes long.
struct StableHloPart {
  std::string name;  // "embedding", "layers.0", "head"
  std::vector<std::string>
      members;             // the layers that are alike: "layers.0", "layers.1"; the part alone otherwise
  StableHloModule module;  // hidden states in and out; weights, positions and the layer's cache as arguments
};

// What comes before the layers, one layer of each kind, what comes after. A layer of a stack is an argument
// as if it were stored alone. Errors as above.
absl::StatusOr<std::vector<StableHloPart>> WriteStableHloParts(const Graph& graph,
                                                               const StableHloOptions& options);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_STABLEHLO_H_
