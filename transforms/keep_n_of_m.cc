// Before  a column of W                      After  keep_n_of_m { keep: 2 of: 4 along: "in" stride: 1 }
//   3 -1  4  1 | -5  9  2 -6                   3  0  4  0 |  0  9  0 -6
//
// Why on a TPU. Half the weights of every group are zero, so half of them need not be read. Today the twin is
// written dense with zeros in it, which is the form that training and judging need; a storage that skips them
// is another step. A stride of 128 makes the members of a group lie in the same lane of neighbouring rows, so
// that a kernel selects whole lanes, never elements within one.
//
// Groups: along the merged in (or out) axis of length L, member m of a group at offset o of
// block b is place b * of * stride + m * stride + o. The largest magnitudes stay; of equals, the first.
//
// Refuses. An axis that of * stride does not divide.
//
// Fidelity. RETRAIN: this is another model until it was tuned. A recipe must ask for it by name.
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr int64_t kMostOf = 4096;
constexpr int64_t kMostStride = int64_t{1} << 20;

// The kernels that multiply activations; tables, heads and routers choose, and are left alone.
bool IsPruned(const Node& node, absl::string_view slot, const Param& param) {
  if (!param.type.is_kernel() || !IsFloat(param.type.dtype) || slot == "router") return false;
  return node.op == OpKind::kAttention || node.op == OpKind::kLatentAttention || node.op == OpKind::kMlp ||
         node.op == OpKind::kGatedMlp || node.op == OpKind::kMoe;
}

class KeepNOfMTransform : public Transform {
 public:
  KeepNOfMTransform(int64_t keep, int64_t of, bool along_in, int64_t stride)
      : keep_(keep), of_(of), along_in_(along_in), stride_(stride) {}

  absl::string_view name() const override { return "keep_n_of_m"; }
  Fidelity fidelity() const override { return Fidelity::kRetrain; }

  Sites FindSites(const Graph& graph) const override {
    return SitesOverParams(graph, [&](const Node& node, absl::string_view slot, const Param& param) {
      if (!IsPruned(node, slot, param)) return Judgement::Other();
      if (IsKept(param)) return Judgement::Native();
      const int64_t length = Extents(param.type).along;
      if (length % (of_ * stride_) != 0) {
        return Judgement::Refused(absl::StrCat("its ", along_in_ ? "in" : "out", " axis of ", length,
                                               " does not divide into groups of ", of_, " with stride ",
                                               stride_));
      }
      return Judgement::Fits();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Param param = *rewriter.graph().FindParam(site.path);
    SetProgram(rewriter, site.path, Kept(param.type, param.program));
    return absl::OkStatus();
  }

 private:
  struct AroundAxis {
    int64_t before = 1, along = 1, after = 1;
  };
  AroundAxis Extents(const ParamType& type) const {
    const int first = along_in_ ? type.lead : type.lead + type.in;
    const int end = along_in_ ? type.lead + type.in : static_cast<int>(type.axes.size());
    AroundAxis extents;
    for (int axis = 0; axis < static_cast<int>(type.axes.size()); ++axis) {
      (axis < first ? extents.before : axis < end ? extents.along : extents.after) *= type.axes[axis].size;
    }
    return extents;
  }

  // A strided group is an axis of its own once the merged axis is split in blocks, members and offsets.
  WeightPtr Kept(const ParamType& type, const WeightPtr& program) const {
    const AroundAxis extents = Extents(type);
    const int64_t blocks = extents.along / (of_ * stride_);
    const WeightPtr split = Reshape(program, {extents.before * blocks, of_, stride_ * extents.after});
    return Reshape(GroupKeepLargest(split, 1, of_, keep_), program->shape());
  }

  // Whether the program is what Kept() makes of some other program, so that a second run would change
  // nothing.
  bool IsKept(const Param& param) const {
    std::vector<const Weight*> path;
    WeightPtr at = param.program;
    while (at->kind() == WeightKind::kReshape || at->kind() == WeightKind::kTranspose) {
      path.push_back(at.get());
      at = at->child();
    }
    if (at->kind() != WeightKind::kGroup || at->group_fn() != GroupFn::kKeepLargest || at->keep() != keep_ ||
        at->group_size() != of_ || Extents(param.type).along % (of_ * stride_) != 0) {
      return false;
    }
    WeightPtr origin = at->child();
    for (auto step = path.rbegin(); step != path.rend(); ++step) {
      origin = (*step)->kind() == WeightKind::kReshape ? Reshape(origin, (*step)->shape())
                                                       : Transpose(origin, (*step)->perm());
    }
    return Kept(param.type, origin) == param.program;
  }

  int64_t keep_;
  int64_t of_;
  bool along_in_;
  int64_t stride_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeKeepNOfM(const TransformStep& step, const TransformContext&) {
  const KeepNOfM& params = step.keep_n_of_m();
  if (params.of() < 2) return Error(1505, "keep_n_of_m.of", "must be at least 2", "write keep: 2 of: 4");
  if (params.keep() < 1 || params.keep() >= params.of()) {
    return Error(1505, "keep_n_of_m.keep",
                 absl::StrCat("must be at least 1 and less than of, ", params.of()));
  }
  if (params.along() != "in" && params.along() != "out") {
    return Error(1505, "keep_n_of_m.along", absl::StrCat("is \"", params.along(), "\""),
                 "give \"in\" or \"out\"");
  }
  if (params.of() > kMostOf) return Error(1505, "keep_n_of_m.of", absl::StrCat("must be at most ", kMostOf));
  if (params.stride() < 0 || params.stride() > kMostStride) {
    return Error(1505, "keep_n_of_m.stride", absl::StrCat("must be positive and at most ", kMostStride));
  }
  return std::make_unique<KeepNOfMTransform>(params.keep(), params.of(), params.along() == "in",
                                             std::max<int64_t>(params.stride(), 1));
}

}  // namespace twinforge
