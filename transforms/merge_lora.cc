// Before                              After  merge_lora { adapter: "adapters/law" }
//   q = W x + (alpha / r) B (A x)       q = (W + (alpha / r) B A) x
//
// Why on a TPU. Two thin multiplies of rank 8 or 16 use a sixteenth of the matrix unit's edge, beside the
// wide one they correct. Merged, they cost nothing, and every later rewrite treats the sum as any other
// weight.
//
// Must stand before rewrites that change a kernel's shape: the adapter was trained for the
// source's. A kernel that holds this adapter already is left alone, so that no step adds it twice.
//
// Refuses. A role that the model has not, a shape that does not fit, experts (an adapter of one matrix for a
// stack of them), and kernels whose bytes another parameter shares: a tied head would receive it as well.
//
// Fidelity. REASSOCIATED, to the model *with* its adapter; the sum is taken in f64 and rounded once. BOUNDED
// by that rounding, half a unit, where the kernel is stored in bf16 or f16.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

class MergeLoraTransform : public Transform {
 public:
  explicit MergeLoraTransform(const Adapter& adapter) : adapter_(adapter) {}

  absl::string_view name() const override { return "merge_lora"; }
  Fidelity fidelity() const override { return Fidelity::kReassociated; }
  Sites FindSites(const Graph& graph) const override {
    const Sharing sharing(graph);
    Sites sites = SitesOverParams(graph, [&](const Node& node, absl::string_view, const Param& param) {
      const auto found = adapter_.find(param.role);
      return found == adapter_.end() ? Judgement::Other() : Judge(sharing, node, param, found->second);
    });
    for (const auto& [role, pair] : adapter_) {
      if (graph.FindParam(role) == nullptr)
        sites.refused.push_back({role, "the model has no such parameter"});
    }
    return sites;
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Param param = *rewriter.graph().FindParam(site.path);
    const AdapterPair& pair = adapter_.at(site.path);
    const int64_t rank = param.program->rank();
    // [in..., out...] -> [out, in] and back.
    std::vector<int64_t> turn, back;
    for (int64_t axis = param.type.in; axis < rank; ++axis) turn.push_back(axis);
    for (int64_t axis = 0; axis < param.type.in; ++axis) turn.push_back(axis);
    for (int64_t axis = rank - param.type.in; axis < rank; ++axis) back.push_back(axis);
    for (int64_t axis = 0; axis < rank - param.type.in; ++axis) back.push_back(axis);

    const WeightPtr turned = Transpose(param.program, turn);
    const WeightPtr matrix = Reshape(turned, MatrixShape(param.type));
    const WeightPtr merged = MergeLora(matrix, pair.a, pair.b, pair.factor);
    SetProgram(rewriter, site.path, Transpose(Reshape(merged, turned->shape()), back));
    return absl::OkStatus();
  }

 private:
  static Shape MatrixShape(const ParamType& type) {
    Shape shape = {1, 1};
    for (int axis = 0; axis < static_cast<int>(type.axes.size()); ++axis) {
      shape[axis < type.in ? 1 : 0] *= type.axes[axis].size;
    }
    return shape;
  }

  static bool Holds(const WeightPtr& program, const AdapterPair& pair) {
    const std::vector<std::string> held = SourcesOf(program);
    const std::vector<std::string> added = SourcesOf(pair.a);
    return !added.empty() && std::includes(held.begin(), held.end(), added.begin(), added.end());
  }

  static Judgement Judge(const Sharing& sharing, const Node& node, const Param& param,
                         const AdapterPair& pair) {
    if (Holds(param.program, pair)) return Judgement::Native();
    // The adapter was trained against the kernel as published: scaled, permuted or padded since, its sum is
    // another.
    if (!node.step.empty() && !absl::EndsWith(node.step, " merge_lora")) {
      return Judgement::Refused(absl::StrCat("step ", node.step,
                                             " already rewrote this node, and the adapter fits it as "
                                             "published: put merge_lora first"));
    }
    if (!param.type.is_kernel()) return Judgement::Refused("it is no kernel");
    if (param.type.lead > 0)
      return Judgement::Refused("it is a stack of experts, and the adapter has one matrix");
    const std::string partner = sharing.Partner(param);
    if (!partner.empty()) return Judgement::Refused(absl::StrCat("it shares its bytes with ", partner));
    const Shape shape = MatrixShape(param.type);
    if (pair.a->rank() != 2 || pair.b->rank() != 2 || pair.b->shape()[0] != shape[0] ||
        pair.a->shape()[1] != shape[1] || pair.b->shape()[1] != pair.a->shape()[0]) {
      return Judgement::Refused(absl::StrCat("the adapter's matrices ", ShapeText(pair.b->shape()), " and ",
                                             ShapeText(pair.a->shape()), " do not fit a kernel of ",
                                             ShapeText(shape)));
    }
    return Judgement::Fits();
  }

  Adapter adapter_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeMergeLora(const TransformStep& step,
                                                         const TransformContext& context) {
  const std::string& path = step.merge_lora().adapter();
  if (path.empty()) return Error(1505, "merge_lora.adapter", "is missing", "name the adapter's folder");
  const auto found = context.adapters.find(path);
  if (found == context.adapters.end()) {
    return Error(1505, "merge_lora.adapter", absl::StrCat("the adapter ", path, " was not opened"));
  }
  return std::make_unique<MergeLoraTransform>(found->second);
}

}  // namespace twinforge
