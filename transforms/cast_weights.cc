// Before                     After  cast_weights { to: "bf16" }
//   q  f32[d_model -> ...]     q  bf16[d_model -> ...]
//
// Why on a TPU. The matrix unit multiplies bf16; f32 weights cost twice the bytes and several passes. Every
// parameter of floats is a site of its own, so that a recipe can leave the small and delicate
// ones (norms, router corrections, sinks) as they are.
//
// Values beyond the new type's range would become infinite. Where the range is narrower (to f16, or from f64)
// the largest magnitude is read from the weights first.
//
// Refuses. What primitives read, or an embedding before them: they say their types in words, and take
// operands of one type only. A value that would overflow. Types of 8 bits and fewer are no choice at all:
// without scales they are no weights.
//
// Fidelity. MOVED where every value of the old type is one of the new; else BOUNDED, by half a unit in the
// last place.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// Values of at least this magnitude become infinite: half a unit past the largest finite one.
double OverflowsFrom(DType dtype) {
  if (dtype == DType::kF16) return 65520;
  if (dtype == DType::kBF16) return std::ldexp(511, 119);
  if (dtype == DType::kF32) return std::ldexp(33554431, 103);
  return std::numeric_limits<double>::infinity();
}

// bf16 and f32 have one range of exponents, so that no weight of the one is out of the other's reach.
int Range(DType dtype) { return dtype == DType::kF16 ? 0 : dtype == DType::kF64 ? 2 : 1; }

// The first primitive whose attributes say a floating type, or that takes no operand of another; "" for none.
std::string FirstWrittenType(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    switch (node.op) {
      case OpKind::kParam:
      case OpKind::kConstant:
      case OpKind::kBroadcast:
      case OpKind::kReshape:
      case OpKind::kConvert:
      case OpKind::kOpaque:
        if (IsFloat(node.type.dtype)) return node.path;
        break;
      default:
        break;
    }
  }
  return "";
}

class CastWeightsTransform : public Transform {
 public:
  explicit CastWeightsTransform(DType to) : to_(to) {}

  absl::string_view name() const override { return "cast_weights"; }
  Fidelity fidelity() const override { return to_ == DType::kF64 ? Fidelity::kMoved : Fidelity::kBounded; }
  Fidelity SiteFidelity(const Graph&, const Site&) const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    const std::string written = FirstWrittenType(graph);
    const Sharing sharing(graph);
    return SitesOverParams(graph, [&](const Node& node, absl::string_view, const Param& param) {
      if (!IsFloat(param.type.dtype)) return Judgement::Other();
      if (param.type.dtype == to_) return Judgement::Native();
      if (node.op == OpKind::kParam) return Judgement::Refused("primitives read it as it is");
      // Everything after an embedding is of its type; a tied head is its table.
      if (!written.empty() && (node.op == OpKind::kEmbedding || !sharing.Partner(param).empty()))
        return Judgement::Refused(absl::StrCat(written, " says in words of what type its operands are"));
      if (!IsStorageFloat(param.type.dtype)) {
        return Judgement::Refused(
            absl::StrCat("it is ", Name(param.type.dtype), ", whose scales lie elsewhere"));
      }
      return Judgement::Fits();
    });
  }

  std::map<std::string, WeightPtr> Wants(const Graph& graph, const Site& site) const override {
    const Param& param = *graph.FindParam(site.path);
    if (Range(param.type.dtype) <= Range(to_)) return {};
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis < param.program->rank(); ++axis) axes.push_back(axis);
    return {{"absmax", Stat(StatKind::kAbsMax, param.program, axes)}};
  }

  absl::Status Rewrite(const Site& site, const Observed& observed, Rewriter& rewriter) const override {
    const auto absmax = observed.find("absmax");
    if (absmax != observed.end() && !absmax->second.empty() && !(absmax->second[0] < OverflowsFrom(to_))) {
      return absl::FailedPreconditionError(
          absl::StrCat("its largest magnitude, ", absmax->second[0], ", overflows ", Name(to_)));
    }
    const Param param = *rewriter.graph().FindParam(site.path);
    ParamType type = param.type;
    type.dtype = to_;
    rewriter.SetParam(site.path, type, Cast(param.program, to_));
    return absl::OkStatus();
  }

 private:
  DType to_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeCastWeights(const TransformStep& step,
                                                           const TransformContext&) {
  const std::string& to = step.cast_weights().to();
  const std::optional<DType> dtype = DTypeFromName(to);
  if (!dtype || !IsStorageFloat(*dtype)) {
    return Error(1505, "cast_weights.to", absl::StrCat("\"", to, "\" is no type to cast to"),
                 "give bf16, f32, f16 or f64");
  }
  return std::make_unique<CastWeightsTransform>(*dtype);
}

}  // namespace twinforge
