// Before                                   After  orient_weights { in_out: "o|down|lm_head" }
//   o        [d_model, heads*head_dim]       o        [heads*head_dim, d_model]
//   lm_head  [vocab, d_model]                lm_head  [d_model, vocab]
//
// Why on a TPU. The compiler gives a weight that is a program's argument the layout of its file.
// Where the matrix unit wants the other one, it inserts a copy of the whole kernel at every step; a kernel
// that already lies as it is read costs nothing. Of all rewrites this one pays most often.
//
// A word of the two patterns is matched against the last part of the role ("o", "lm_head") and against the
// name of the slot ("head"). A kernel that neither pattern names stays as it lies. A bundle turns as one: its
// members are joined, so they must be named alike, or the bundle itself ("qkv").
//
// Refuses. Both patterns match one kernel. The members of a bundle would part ways. A kernel
// that shares its bytes with another parameter (tied embeddings), if the two would lie differently
// afterwards: that is a second copy, not a movement.
//
// Fidelity. MOVED: no value changes, not even the graph's mathematics; Storage alone does.
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "transforms/edit.h"
#include "transforms/names.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

class OrientWeightsTransform : public Transform {
 public:
  OrientWeightsTransform(std::unique_ptr<RE2> in_out, std::unique_ptr<RE2> out_in)
      : in_out_(std::move(in_out)), out_in_(std::move(out_in)) {}

  absl::string_view name() const override { return "orient_weights"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    const Sharing sharing(graph);
    return WithBundles(graph,
                       SitesOverParams(graph, [&](const Node&, absl::string_view slot, const Param& param) {
                         return JudgeParam(graph, sharing, slot, param);
                       }));
  }

  absl::Status CheckNames(const Graph& graph) const override {
    const std::set<std::string> known = ParameterNames(graph);
    bool names_any = false;
    for (const auto& [field, pattern] : {std::pair("orient_weights.in_out", in_out_.get()),
                                         std::pair("orient_weights.out_in", out_in_.get())}) {
      if (pattern == nullptr) continue;
      TWIN_RETURN_IF_ERROR(CheckPatternNames(field, *pattern, known));
      names_any = names_any || NamesAKernel(graph, *pattern);
    }
    // One pattern alone may: a recipe for all families speaks of q where a model has latents.
    if (names_any) return absl::OkStatus();
    return Error(1105, "orient_weights", "the step names no kernel of this model",
                 "leave the step out, or write `where { expect: NONE }`");
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Graph& graph = rewriter.graph();
    std::vector<std::string> roles = {site.path};
    for (const Bundle& bundle : graph.bundles()) {
      if (bundle.role == site.path) roles = bundle.members;
    }
    for (const std::string& role : roles) {
      Storage storage = graph.FindParam(role)->storage;
      storage.orientation =
          storage.orientation == Orientation::kOutIn ? Orientation::kInOut : Orientation::kOutIn;
      rewriter.SetStorage(role, storage);
    }
    return absl::OkStatus();
  }

 private:
  static bool Matches(const RE2* pattern, absl::string_view slot, absl::string_view role) {
    if (pattern == nullptr) return false;
    const absl::string_view last = LastPart(role);
    return RE2::FullMatch({last.data(), last.size()}, *pattern) ||
           (!slot.empty() && RE2::FullMatch({slot.data(), slot.size()}, *pattern));
  }

  static bool NamesAKernel(const Graph& graph, const RE2& pattern) {
    for (const Node& node : graph.nodes()) {
      for (const auto& [slot, role] : node.params) {
        if (!graph.FindParam(role)->type.is_kernel()) continue;
        const Bundle* bundle = graph.BundleOf(role);
        if (Matches(&pattern, slot, role) || (bundle != nullptr && Matches(&pattern, "", bundle->role)))
          return true;
      }
    }
    return false;
  }

  // How the recipe wants a kernel to lie; as it lies where the recipe does not speak of it.
  struct Wish {
    bool named = false;
    bool both = false;
    Orientation orientation = Orientation::kOutIn;
  };
  Wish WishFor(const Graph& graph, absl::string_view slot, const Param& param) const {
    bool in_out = Matches(in_out_.get(), slot, param.role);
    bool out_in = Matches(out_in_.get(), slot, param.role);
    if (const Bundle* bundle = graph.BundleOf(param.role)) {
      in_out = in_out || Matches(in_out_.get(), "", bundle->role);
      out_in = out_in || Matches(out_in_.get(), "", bundle->role);
    }
    Wish wish;
    wish.named = in_out || out_in;
    wish.both = in_out && out_in;
    wish.orientation = in_out   ? Orientation::kInOut
                       : out_in ? Orientation::kOutIn
                                : param.storage.orientation;
    return wish;
  }

  Judgement JudgeParam(const Graph& graph, const Sharing& sharing, absl::string_view slot,
                       const Param& param) const {
    if (!param.type.is_kernel()) return Judgement::Other();
    const Wish wish = WishFor(graph, slot, param);
    if (wish.both) return Judgement::Refused("both in_out and out_in name it");
    if (!wish.named) return Judgement::Other();
    if (wish.orientation == param.storage.orientation) return Judgement::Native();
    const std::string partner = sharing.Partner(param);
    if (!partner.empty() && !TurnsToo(graph, partner)) {
      return Judgement::Refused(
          absl::StrCat("it shares its bytes with ", partner,
                       ", which keeps its orientation: turning one alone would store both"));
    }
    return Judgement::Fits();
  }

  // Whether `role` will be turned by this step as well.
  bool TurnsToo(const Graph& graph, const std::string& role) const {
    const Param& param = *graph.FindParam(role);
    const Wish wish = WishFor(graph, "", param);
    return wish.named && !wish.both && wish.orientation != param.storage.orientation;
  }

  // Sites of members become one site of their bundle, if all of them turn.
  Sites WithBundles(const Graph& graph, Sites members) const {
    Sites sites;
    std::map<std::string, int64_t> turning;  // by bundle
    for (const Site& site : members.fit) {
      if (const Bundle* bundle = graph.BundleOf(site.path)) ++turning[bundle->role];
    }
    for (const Site& site : members.fit) {
      const Bundle* bundle = graph.BundleOf(site.path);
      if (bundle == nullptr) {
        sites.fit.push_back(site);
        continue;
      }
      int64_t& count = turning[bundle->role];
      if (count < 0) continue;  // filed already
      if (count == static_cast<int64_t>(bundle->members.size())) {
        sites.fit.push_back({site.node, bundle->role});
      } else {
        sites.refused.push_back(
            {bundle->role, "only some of its members are named, and they lie in one tensor"});
      }
      count = -1;
    }
    sites.refused.insert(sites.refused.end(), members.refused.begin(), members.refused.end());
    sites.native = std::move(members.native);
    return WithStacks(graph, std::move(sites));
  }

  // Layers of a stack turn together, or none does.
  static Sites WithStacks(const Graph& graph, Sites sites) {
    std::map<std::string, size_t> turning;  // by stack
    for (const Site& site : sites.fit) {
      if (const LayerStack* stack = graph.StackOf(site.path)) ++turning[stack->role];
    }
    std::vector<Site> fit;
    for (Site& site : sites.fit) {
      const LayerStack* stack = graph.StackOf(site.path);
      if (stack == nullptr || turning[stack->role] == stack->members.size()) {
        fit.push_back(std::move(site));
      } else {
        sites.refused.push_back(
            {site.path, absl::StrCat("only some layers of ", stack->role, " would turn")});
      }
    }
    sites.fit = std::move(fit);
    return sites;
  }

  std::unique_ptr<RE2> in_out_;
  std::unique_ptr<RE2> out_in_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeOrientWeights(const TransformStep& step,
                                                             const TransformContext&) {
  const OrientWeights& params = step.orient_weights();
  if (params.in_out().empty() && params.out_in().empty()) {
    return Error(1505, "orient_weights", "names no role",
                 "give in_out or out_in, such as in_out: \"o|down\"");
  }
  TWIN_ASSIGN_OR_RETURN(auto in_out, RolePattern("orient_weights.in_out", params.in_out()));
  TWIN_ASSIGN_OR_RETURN(auto out_in, RolePattern("orient_weights.out_in", params.out_in()));
  return std::make_unique<OrientWeightsTransform>(std::move(in_out), std::move(out_in));
}

}  // namespace twinforge
