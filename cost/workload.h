// One step of a model on a mesh of devices: what is asked, before any chip is known.
//
//   {.phase = kDecode, .batch = 32, .context = 4096, .shards = 8}        eight devices, tensor-parallel
//   ParseMesh("tp=1,dp=8,ep=8")                                          attention by data, experts by expert
//
//            tp                 dp                    ep                    pp
//   splits   heads, d_ff,       sequences of the      experts; spans        layers
//            vocab              batch                 tp x dp devices
#ifndef TWINFORGE_COST_WORKLOAD_H_
#define TWINFORGE_COST_WORKLOAD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "weights/dtype.h"

namespace twinforge {

enum class Phase { kPrefill, kDecode };

// Which experts the tokens of a step choose. Unknown to any proof, so it is declared, and each row that
// depends on it says so.
enum class Routing {
  kSame,  // all tokens choose the same top_k experts, in as few groups as hold them: the least bytes, a bound
          // always
  kSpread,    // choices as different as can be: min(experts, tokens * top_k) distinct, evenly loaded
  kExpected,  // each token chooses top_k experts at random: E (1 - (1 - k/E)^tokens) distinct, rounded up
};

absl::string_view RoutingWord(Routing routing);  // "same", as typed
// What estimates take: as declared, but at random where only the least is, which no engine can hope for.
Routing EstimatedRouting(Routing declared);

// How numbers are stored in groups that share a scale.
struct WeightFormat {
  std::string name;           // "fp8_block", as typed
  DType stored;               // of an element
  DType multiplied;           // what the matrix unit is given
  int64_t group_in = 0;       // elements of the contraction axis under one scale; 0: one scale in all
  int64_t group_out = 1;      // and of the output axis
  DType scale = DType::kF32;  // of a scale
};

// bf16, f16, f32, fp8, fp8_block, int8, int4, nvfp4, mxfp4. TF1704 names the known ones.
absl::StatusOr<WeightFormat> ParseWeightFormat(absl::string_view name);

// Types in which a model is to be served, where they differ from those of its graph. Layers' kernels take
// `weights`; embeddings, heads, routers and norms keep theirs, as serving engines do.
struct Precision {
  std::optional<WeightFormat> weights;
  bool attention_as_is = false;      // attention's kernels keep their type: a checkpoint of quantised experts
  std::optional<DType> activations;  // of products with layers' kernels
  std::optional<DType> cache;
};

// Devices by axis. A device is a chip.
struct Mesh {
  int64_t tp = 1;
  int64_t dp = 1;
  int64_t ep = 1;
  int64_t pp = 1;
  int64_t chips() const { return tp * dp * pp; }
};

// "tp=8,ep=8": axes in any order, each once. TF1702 for an unknown axis, a size below 1, or an ep that
// does not divide tp x dp.
absl::StatusOr<Mesh> ParseMesh(absl::string_view text);
std::string MeshText(const Mesh& mesh);  // "tp=8,ep=8"; axes of size 1 left out, "tp=1" for none

// A training step: forward, backward and AdamW's update, of master weights and two moments in f32. Devices of
// a `dp` axis share all state (ZeRO-3, FSDP): each gathers a layer's weights for forward and backward, and
// scatters their gradients.
struct Training {
  bool rematerialise =
      false;  // blocks keep their input alone and compute their inside again in the backward pass
};

// One step. Prefill: `batch` sequences of `context` new tokens each, after `past` cached ones. Decode:
// `batch` sequences of one new token each, `context` tokens already cached.
struct Workload {
  Phase phase = Phase::kDecode;
  int64_t batch = 1;
  int64_t context = 1024;
  int64_t shards = 1;  // tensor-parallel devices; sizes must divide, else a refusal that names the pad
  Routing routing = Routing::kSame;
  int64_t past = 0;  // prefill only
  int64_t dp = 1;    // groups of devices that share the batch
  int64_t ep = 1;    // groups that share the experts, among shards x dp devices
  int64_t pp = 1;    // stages that share the layers
  Precision precision;
  std::optional<Training> training;  // of kPrefill, with nothing cached before

  int64_t devices() const { return shards * dp; }  // of one stage
  // Sequences of one data-parallel group, the fullest one.
  int64_t local_batch() const { return (batch + dp - 1) / dp; }
};

}  // namespace twinforge

#endif  // TWINFORGE_COST_WORKLOAD_H_
