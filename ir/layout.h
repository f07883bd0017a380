// How a format on disk says a model: which stored tensors hold which roles, and which
// config keys hold which facts. One table, read in both directions.
//
// Importing walks it from files to roles, exporting from roles to files, so the two can't
// disagree and no direction is written by hand:
//
//   "model.layers.0.self_attn.q_proj.weight" [heads*head_dim, d_model]  <->  layers.0.attn.q
//
// A family file (importers/families/*.textproto) is compiled into Layouts for one config;
// what is below is the compiled, fully expanded value that travels with the Model.
#ifndef TWINFORGE_IR_LAYOUT_H_
#define TWINFORGE_IR_LAYOUT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "ir/graph.h"
#include "weights/invert.h"

namespace twinforge {

// One parameter's part of a stored tensor.
struct LayoutPart {
  std::string role;  // "layers.0.attn.q"
  // The stored extents, outermost first, each a product of the parameter's axes:
  // {{"heads", "head_dim"}, {"d_model"}}. All axes of the parameter appear once, but for
  // `expert` where the experts are stored apart.
  std::vector<std::vector<std::string>> extents;
  int64_t experts = 0;  // where not 0, so many tensors hold one expert's slice each
};

// One stored tensor, or a run of them: the experts of a layer, numbered from 0. A layer of 256 is one entry.
//
//   name "experts.", name_end ".up_proj.weight", 256 experts    experts.0.up_proj.weight ...
struct LayoutTensor {
  std::string name;               // of a run: what stands before the number
  std::string name_end;           // and after it
  std::vector<LayoutPart> parts;  // one, or several that lie fused; of a run, all of as many experts
  // How several parts lie together, along an axis counted in the *factored* extents (before products
  // are taken): kConcat joins there, kInterleave alternates elements there.
  int64_t join_axis = 0;
  Bundle::Arrangement arrangement = Bundle::Arrangement::kConcat;
  bool optional = false;  // may be absent (present iff its roles are in the graph)

  bool is_run() const { return !parts.empty() && parts[0].experts > 0; }
  int64_t count() const { return is_run() ? parts[0].experts : 1; }
  std::string NameAt(int64_t i) const;  // 0 <= i < count()
};

// A tensor that a checkpoint may carry and the model does not use: rotary inv_freq, masks.
struct IgnoredTensor {
  std::string pattern;  // re2, full match
  std::string reason;   // "recomputed by the runtime"
};

// A parameter that is not stored when it equals another one's program (transposed): tied heads.
struct Tie {
  std::string role;  // "lm_head"
  std::string to;    // "embed"
  std::string key;   // "tie_word_embeddings"
  // What a runtime takes where the key is absent; unset: the key is then always written.
  std::optional<bool> implied;
};

// A fact of the graph that a config key says.
struct ConfigBinding {
  enum class Fact : uint8_t {
    kAxis,               // physical size of axis `axis` (the same wherever it occurs under `scope`)
    kRopeTheta,          // Rope.theta
    kPartialRotary,      // Rope.rotary_dim / head_dim
    kSoftmaxScalePower,  // s where scale = s^-0.5 (gemma2: query_pre_attn_scalar)
    kSoftmaxScale,       // scale itself (granite: attention_multiplier)
    kNormEps,
    kTopK,
    kDType,  // "bfloat16": the dtype that most parameter bytes have
    kLayers,
    kFixed,         // `text` as JSON: written whenever this layout is written
    kAxisQuotient,  // physical size of axis `axis` / that of axis `text` (n_shared_experts: shared_ff / d_ff)
    kAxisSum,       // physical sizes of axes `axis` and `text`, added (qk_head_dim: nope_dim + rope_dim)
    kRopeInterleaved,  // a truth value: Rope.style is INTERLEAVED (deepseek: rope_interleave)
  };
  std::string key;  // dotted path in config.json
  Fact fact = Fact::kAxis;
  std::string axis;              // kAxis
  std::string scope;             // re2 on node paths (full match), "" = everywhere: which nodes say the fact
  std::string text;              // kFixed
  bool only_if_present = false;  // rewrite the key where the source config has it, never add it
  // What a runtime takes where the key is absent or null (head_dim: hidden_size / heads; rope_theta:
  // 10000). With it an absent key stays absent as long as the graph agrees. A fact that departs from
  // it is written to the first of its bindings that may be added, and refused (TF1602) if none may.
  std::optional<double> implied;
  // Keys that `implied` was computed from (head_dim: hidden_size, num_attention_heads): it holds only
  // while they say what they said in the source.
  std::vector<std::string> implied_from;
};

// Another model_type that computes the same function and can say more: granite says the softmax scale.
struct Carrier {
  std::string model_type;
  std::vector<ConfigBinding> bindings;  // added to, or replacing, the layout's own
};

struct Layout {
  std::string name;                   // "hub", "grouped"
  std::vector<LayoutTensor> tensors;  // in file order of the family
  std::vector<IgnoredTensor> ignored;
  std::vector<Tie> ties;
  std::vector<ConfigBinding> bindings;
  std::vector<Carrier> carriers;
  // Facts that a plain runtime of this family derives rather than reads, so that a graph
  // which departs from them can't be said here:
  bool head_dim_is_key = true;            // false: head_dim = d_model / heads (gpt2, bert)
  bool heads_divide_d_model = false;      // true: its config refuses heads that do not divide d_model
  bool partial_rotary_is_key = false;     // false: the whole head turns
  bool masks_suppressed_tokens = true;    // generate() honours generation_config's suppress_tokens
  Rope::Style rope_style = Rope::HALVES;  // how heads turn where no kRopeInterleaved key says it
};

// ---- from files to roles

// Name on disk -> its kSource. A run that is known to be there whole may stand as one kStack under its first
// name.
using StoredTensors = absl::flat_hash_map<std::string, WeightPtr>;

// Programs for every role of `layout` over stored tensors whose shapes are known, in the
// canonical orientation of `types` (role -> type). Roles of optional tensors that `stored`
// lacks are left out, but for tied ones: they get their partner's program, transposed.
// REQUIRES: stored shapes were checked against the layout.
std::map<std::string, WeightPtr> ProgramsFromFiles(const Layout& layout,
                                                   const std::map<std::string, ParamType>& types,
                                                   const StoredTensors& stored);

// The shape that `tensor`, or each of a run, has on disk, given its parts' types.
absl::StatusOr<Shape> StoredShape(const LayoutTensor& tensor, const std::map<std::string, ParamType>& types);

// Storage (orientation, per_expert) that `tensor` gives its parts.
Storage StorageOf(const LayoutPart& part, const ParamType& type);

// ---- from roles to files

// The stored tensors of `graph` in `layout`, in the layout's order, tied ones left out.
// A graph that the layout can't say (storage that disagrees, a role it has no place for,
// a native padding) is a diagnostic (TF1601) naming role, step and reason.
absl::StatusOr<std::vector<NamedProgram>> FilesFromGraph(const Layout& layout, const Graph& graph);

// config.json of `graph`: `config` with every bound key written from the graph, other keys
// kept. TF1602 where the graph's facts can't be said (two values for one key, a softmax scale that
// no key holds and no carrier can).
absl::StatusOr<JsonValue> ConfigFromGraph(const Layout& layout, const Graph& graph, const JsonValue& config);

// ---- the twin's own layout: roles as names

// One tensor per parameter or bundle, named by role, oriented by Storage, axes factored
// only as far as orientation needs: [lead..., out..., in...] or [lead..., in..., out...]
// with out and in axes each merged into one extent (kernels are matrices on disk). Vectors are
// [lead..., all others merged].
// Experts are one tensor; stacked layers too, [layer, ...]. Parameters whose stored programs are equal share
// one tensor: a tied head that lies as its table does. Turned the other way by a recipe, it is stored once
// more. In graph order.
struct TwinTensor {
  std::string name;
  WeightPtr program;               // over the source's tensors
  std::vector<std::string> roles;  // parameters it holds (several: a bundle, a stack, or aliases)
};
std::vector<TwinTensor> TwinTensors(const Graph& graph);
// The inverse: for each role the program over twin tensors that yields its canonical parameter.
std::map<std::string, WeightPtr> RolesFromTwin(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_IR_LAYOUT_H_
