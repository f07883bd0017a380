// What every transform is written with: verdicts over nodes and parameters, and edits of named axes.
//
//   Sites FindSites(const Graph& graph) const override {
//     return SitesOverNodes(graph, [&](const Node& node) { ... return Judgement::Native(); });
//   }
//   MapAxis(rewriter, "layers.0.attn.q", "head_dim", map);     // q's places along head_dim, re-indexed
//
// A judge looks at one place and says one of four things; the walk files them. An edit
// takes an axis by name, never by position, and keeps the axis's logical size: what was 20 wide before
// the first padding is 20 wide for ever.
#ifndef TWINFORGE_TRANSFORMS_EDIT_H_
#define TWINFORGE_TRANSFORMS_EDIT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "re2/re2.h"
#include "transforms/transform.h"

namespace twinforge {

// What a judge says of one place.
struct Judgement {
  enum class Kind { kOther, kFits, kNative, kRefused };
  Kind kind = Kind::kOther;
  std::string reason;

  static Judgement Other() { return {}; }  // not a place of this transform
  static Judgement Fits() { return {Kind::kFits, ""}; }
  static Judgement Native() { return {Kind::kNative, ""}; }  // nothing to do here
  static Judgement Refused(std::string reason) { return {Kind::kRefused, std::move(reason)}; }
  bool refused() const { return kind == Kind::kRefused; }
};

// A refusal wins over a fit, a fit over native, native over other; the first reason stays.
Judgement Join(Judgement a, Judgement b);

// Fits, or refused where padding makes `axis` larger than any that is read again (ir/largest.h).
Judgement JudgeGrowth(absl::string_view axis, int64_t size);

// One site per node that the judge accepts, in graph order.
Sites SitesOverNodes(const Graph& graph, absl::FunctionRef<Judgement(const Node&)> judge);

// One site per parameter; its path is the role. Slots in the order of the node's op.
Sites SitesOverParams(const Graph& graph,
                      absl::FunctionRef<Judgement(const Node&, absl::string_view slot, const Param&)> judge);

// ---- looking

// The first parameter axis of `node` called `name`, or nullptr.
const ParamAxis* FindAxis(const Graph& graph, const Node& node, absl::string_view name);
// The same axis's size. REQUIRES: it exists.
int64_t AxisSize(const Graph& graph, const Node& node, absl::string_view name);

// "q" of "layers.0.attn.q".
absl::string_view LastPart(absl::string_view role);

// Smallest multiple of `multiple` that holds `size`.
int64_t RoundUp(int64_t size, int64_t multiple);

// Which parameters hold the same bytes: one program, or one program transposed (a tied head).
class Sharing {
 public:
  explicit Sharing(const Graph& graph);
  // Another role that shares `param`'s bytes, or "".
  std::string Partner(const Param& param) const;

 private:
  absl::flat_hash_map<const Weight*, std::vector<std::string>> roles_;
};

// Whether `dtype` holds weights as they are, without scales: f16, bf16, f32, f64.
bool IsStorageFloat(DType dtype);

// ---- editing

// Re-indexes an axis; fill places hold `fill`. REQUIRES: the role has the axis.
void MapAxis(Rewriter& rewriter, absl::string_view role, absl::string_view axis, const IndexMap& map,
             double fill = 0);
// The same for every parameter of `node` that has the axis.
void MapAxisEverywhere(Rewriter& rewriter, NodeId node, absl::string_view axis, const IndexMap& map);
// [0:size fill:padded-size]
IndexMap TailPad(int64_t size, int64_t padded);
// Multiplies a parameter by a constant; by 1 leaves the same program.
void ScaleParam(Rewriter& rewriter, absl::string_view role, double factor);
// Multiplies a norm's scale, which is stored as w for (offset + w). REQUIRES: padded places hold -offset.
void ScaleNorm(Rewriter& rewriter, absl::string_view role, double offset, double factor);
// Changes the program alone. REQUIRES: same shape and dtype.
void SetProgram(Rewriter& rewriter, absl::string_view role, WeightPtr program);

// ---- parameters of steps

// A number, or the fact of the chip that `fact` names, whichever is given; neither: `fallback`,
// or TF1505 where that is 0. `field` is "pad_vocab.multiple".
absl::StatusOr<int64_t> NumberOrFact(absl::string_view field, int64_t number, int fact,
                                     const ChipFacts& facts, int64_t fallback = 0);

// A pattern over last parts of roles; null where `text` is empty, TF1505 where it is none. `field` as above.
absl::StatusOr<std::unique_ptr<RE2>> RolePattern(absl::string_view field, const std::string& text);

}  // namespace twinforge

#endif  // TWINFORGE_TRANSFORMS_EDIT_H_
