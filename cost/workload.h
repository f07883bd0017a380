// One step of a model on a mesh of devices: what is asked, before any chip is known.
//
//   {.phase = kDecode, .batch = 32, .context = 4096, .shards = 8}        eight devices, tensor-parallel
//   {.phase = kDecode, .batch = 32, .context = 4096, .chunk = 512}       and 512 tokens of a prompt beside
//   ParseMesh("tp=1,dp=8,ep=8")                                          attention by data, experts by expert
//   ParseMesh("tp=8,dp=2@dcn")                                           two slices, data parallel across
//   them
//
//            tp                 dp                    sp                ep                     pp
//   splits   heads, d_ff,       sequences of the      each sequence     experts; spans         layers
//            vocab              batch                 and its cache     tp x dp x sp devices
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

// Axes whose neighbours lie in different slices, joined by the data centre's network alone.
struct Crossing {
  bool tp = false;
  bool dp = false;
  bool sp = false;
  bool pp = false;
};

// Devices by axis. A device is a chip.
struct Mesh {
  int64_t tp = 1;
  int64_t dp = 1;
  int64_t ep = 1;
  int64_t pp = 1;
  int64_t sp = 1;
  Crossing dcn;
  int64_t chips() const { return tp * dp * sp * pp; }
};

// "tp=8,ep=8": axes in any order, each once; "@dcn" after a size says that the axis crosses slices. TF1720
// for an unknown axis, a size below 1, more than 2^20 chips, or an ep that does not divide tp x dp x sp.
absl::StatusOr<Mesh> ParseMesh(absl::string_view text);
std::string MeshText(const Mesh& mesh);  // "tp=8,ep=8"; axes of size 1 left out, "tp=1" for none

// A training step: forward, backward and AdamW's update, of master weights and two moments in f32. Devices of
// a `dp` axis share all state (ZeRO-3, FSDP): each gathers a layer's weights for forward and backward, and
// scatters their gradients.
struct Training {
  bool rematerialise =
      false;  // blocks keep their input alone and compute their inside again in the backward pass
};

// What an engine pads or cannot even out. Nothing in the bounds; rung R8 counts with it.
struct Padding {
  int64_t page = 1;         // places of a cache that are read together
  int64_t tokens_from = 0;  // new tokens of a step are padded to a power of two, at least this many; 0: not
  bool uneven = false;      // the fullest device of experts has more than its share of the tokens
};

// One step. Prefill: `batch` sequences of `context` new tokens each, after `past` cached ones. Decode:
// `batch` sequences of one new token each, `context` tokens already cached; with a `chunk`, a mixed step.
struct Workload {
  Phase phase = Phase::kDecode;
  int64_t batch = 1;
  int64_t context = 1024;
  int64_t shards = 1;  // tensor-parallel devices; sizes must divide, else a refusal that names the pad
  Routing routing = Routing::kSame;
  int64_t past = 0;   // prefill; mixed: of the chunk's prompt
  int64_t dp = 1;     // groups of devices that share the batch
  int64_t ep = 1;     // groups that share the experts, among shards x dp devices
  int64_t pp = 1;     // stages that share the layers
  int64_t sp = 1;     // devices that share each sequence: its new tokens where it has several, its cache
  int64_t chunk = 0;  // decode: new tokens of one prompt of each dp group in the same step, after `past` ones
  int64_t microbatches = 1;  // equal parts of the batch that pass the stages one after the other
  Crossing dcn;
  Padding padding;
  Precision precision;
  std::optional<Training> training;  // of kPrefill, with nothing cached before

  int64_t devices() const { return shards * dp * sp; }  // of one stage
  // Sequences of one data-parallel group, the fullest one.
  int64_t local_batch() const { return (batch + dp - 1) / dp; }
  Mesh mesh() const { return {.tp = shards, .dp = dp, .ep = ep, .pp = pp, .sp = sp, .dcn = dcn}; }
  bool mixed() const { return phase == Phase::kDecode && chunk > 0; }
};

// "prefill", "decode", "mixed" or "train".
absl::string_view PhaseWord(const Workload& workload);

// What passes a stage at a time: the workload with its share of the batch.
Workload OneMicrobatch(Workload workload);

}  // namespace twinforge

#endif  // TWINFORGE_COST_WORKLOAD_H_
