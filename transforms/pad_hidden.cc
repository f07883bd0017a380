// Before  d_model 2880                 After  pad_hidden { multiple: 1024 form: NATIVE }
//   embed          [vocab -> d_model=2880]     [vocab -> d_model=3072~2880]       zeros behind
//   q, k, v, up    [d_model=2880 -> ..]        [d_model=3072~2880 -> ..]
//   o, down        [.. -> d_model=2880]        [.. -> d_model=3072~2880]
//   norm           [d_model=2880]              [d_model=3072~2880]                mean over 2880 places
//                                      After  pad_hidden { multiple: 1024 form: PORTABLE }
//   the same, and norm                         gain times sqrt(2880/3072), eps times 2880/3072
//
// Why on a TPU. Every multiply of the model has the hidden width on one side. 2880 is 11.25 edges of a
// 256-wide matrix unit: each pass over it runs one quarter-filled tile, and fused expert kernels refuse the
// width.
//
// The whole graph is one site, named by its embedding: whatever writes the residual stream gets columns of
// zeros, whatever reads it rows of zeros, so new places hold 0 from the first table to the last norm.
//
// NATIVE. A norm divides by the *logical* width (NormAttrs.norm_dim); a layer_norm takes its mean and
// variance over those places alone, which are the first. The new gains are 0.
//
// PORTABLE, for a runtime whose rms_norm divides by all P places where the source had D; s = sqrt(P/D). With
// zeros appended the mean square shrinks by D/P. Two exact repairs, measured apart in f64:
//   - eps times D/P, gains divided by s: kernels keep their bits. Right where the config's eps belongs to
//     these norms alone and no scale of the embedding follows the hidden size.
//   - else, the stream itself grows by s: o, down and their biases times s (and the embedding's rows, unless
//   the
//     runtime multiplies them by sqrt(P) where it had sqrt(D)). The mean square is then what it was and eps
//     stays; a norm that kernels read is divided by s, one that is added back keeps its gain. A head tied to
//     rows that were scaled grows with them, and the norm before it is divided by s twice.
//
// Refuses. A width that the outside sees (an encoder's result, an input); an op on the stream that is neither
// composite nor a sum; a width of two sizes; a bundle joined along it. PORTABLE also: layer_norm, whose mean
// no parameter can repair; a stream read without a norm, or a norm both read and added; one padded natively
// before.
//
// Fidelity. NATIVE: MOVED. PORTABLE: REASSOCIATED; BOUNDED by half a unit where what is scaled is stored in
// bf16 or f16 and its factor is no power of two.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr absl::string_view kHidden = "d_model";

bool IsNorm(const Node& node) { return node.op == OpKind::kRmsNorm || node.op == OpKind::kLayerNorm; }

// Axes [first, last) of `type` that are the hidden one.
bool Hides(const ParamType& type, size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    if (type.axes[i].name == kHidden) return true;
  }
  return false;
}
bool ReadsStream(const ParamType& type) { return Hides(type, type.lead, type.lead + type.in); }
bool WritesStream(const ParamType& type) { return Hides(type, type.lead + type.in, type.axes.size()); }

bool ReadsStream(const Graph& graph, const Node& node) {
  for (const auto& [slot, role] : node.params) {
    if (ReadsStream(graph.FindParam(role)->type)) return true;
  }
  return false;
}

bool HasHidden(const Type& type) {
  for (const Axis& axis : type.axes) {
    if (axis.name == kHidden) return true;
  }
  return false;
}

const Node* FirstOf(const Graph& graph, OpKind op) {
  for (const Node& node : graph.nodes()) {
    if (node.op == op) return &node;
  }
  return nullptr;
}

// ---- what unmodified code needs beside the zeros

struct PortableHidden {
  std::string refusal;
  double eps = 1;                  // every norm's eps is multiplied by it
  double writers = 1;              // kernels and biases that write the stream
  double table = 1;                // the embedding's rows
  std::string tied;                // the head whose columns are those rows
  double embedding_scale = 0;      // the new one, where the runtime derives it
  std::map<NodeId, double> gains;  // by norm
};

// The width that a runtime's derived embedding scale is the root of.
bool IsRootOf(double scale, int64_t width) {
  const double root = std::sqrt(static_cast<double>(width));
  return std::abs(scale - root) <= 1e-9 * root;
}

class PortablePlanner {
 public:
  PortablePlanner(const Graph& graph, const Node& embedding, int64_t size, int64_t padded)
      : graph_(graph), embedding_(embedding), size_(size), s_(std::sqrt(double(padded) / double(size))) {
    plan_.embedding_scale = std::sqrt(double(padded));
  }

  PortableHidden Plan() {
    bool shared_eps = false;
    for (const Node& node : graph_.nodes()) {
      shared_eps = shared_eps || node.Has("q_norm");
      if (IsNorm(node)) CheckNorm(node);
    }
    const EmbeddingAttrs& embedding = embedding_.attrs->embedding();
    if (!shared_eps && !embedding.has_scale()) {
      plan_.embedding_scale = 0;
      plan_.eps = 1 / (s_ * s_);
      for (const Node& node : graph_.nodes()) {
        if (IsNorm(node)) plan_.gains[node.id] = 1 / s_;
      }
      return std::move(plan_);
    }
    plan_.writers = s_;
    if (!embedding.has_scale() || !IsRootOf(embedding.scale(), size_)) {
      plan_.embedding_scale = 0;
      plan_.table = s_;
    }
    PlanHead();
    for (const Node& node : graph_.nodes()) PlanStream(node);
    return std::move(plan_);
  }

 private:
  void Refuse(std::string reason) {
    if (plan_.refusal.empty()) plan_.refusal = std::move(reason);
  }

  void CheckNorm(const Node& norm) {
    if (norm.op == OpKind::kLayerNorm) {
      return Refuse(absl::StrCat(norm.path, " subtracts a mean over all places, which no parameter repairs: ",
                                 "form: NATIVE would do"));
    }
    const ParamAxis& axis = graph_.param(norm, "scale").type.axes[0];
    const int64_t stated = norm.attrs->norm().norm_dim();
    const int64_t mean_over = stated != 0 ? stated : axis.logical;
    if (mean_over != axis.size) {
      Refuse(absl::StrCat(norm.path, " divides by ", mean_over, " of ", axis.size,
                          " places: padded natively before"));
    }
  }

  // A head that shares the table's bytes must be scaled with it, or be torn from it.
  void PlanHead() {
    const std::string partner = Sharing(graph_).Partner(graph_.param(embedding_, "table"));
    if (partner.empty()) return;
    const Node* head = FirstOf(graph_, OpKind::kLmHead);
    if (head == nullptr || head->Role("head") != partner) {
      return Refuse(absl::StrCat("its table shares its bytes with ", partner));
    }
    plan_.tied = partner;
  }

  void PlanStream(const Node& node) {
    if (IsNorm(node)) {
      plan_.gains[node.id] = GainOf(node);
    } else if (ReadsStream(graph_, node) && !IsNorm(graph_.node(node.operands[0]))) {
      Refuse(absl::StrCat(node.path, " reads the stream without a norm"));
    }
  }

  // The stream comes in s times as large; kernels want it as it was, sums as it is.
  double GainOf(const Node& norm) {
    double gain = 0;
    for (const NodeId id : graph_.UsersOf(norm.id)) {
      const Node& user = graph_.node(id);
      double wanted = 1;
      if (ReadsStream(graph_, user))
        wanted = 1 / (user.Has("head") && !plan_.tied.empty() ? s_ * plan_.table : s_);
      if (gain != 0 && gain != wanted) Refuse(absl::StrCat(norm.path, " is both read and added"));
      gain = wanted;
    }
    return gain == 0 ? 1 : gain;
  }

  const Graph& graph_;
  const Node& embedding_;
  int64_t size_;
  double s_;
  PortableHidden plan_;
};

class PadHiddenTransform : public Transform {
 public:
  PadHiddenTransform(Form form, int64_t multiple) : portable_(form == PORTABLE), multiple_(multiple) {}

  absl::string_view name() const override { return "pad_hidden"; }
  Fidelity fidelity() const override { return portable_ ? Fidelity::kReassociated : Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    const Node* embedding = FirstOf(graph, OpKind::kEmbedding);
    return SitesOverNodes(graph, [&](const Node& node) {
      return &node == embedding ? Judge(graph, node) : Judgement::Other();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Node embedding = rewriter.graph().node(site.node);
    const int64_t size = AxisSize(rewriter.graph(), embedding, kHidden);
    const int64_t padded = RoundUp(size, multiple_);
    // What the form needs is a question about the graph as it was.
    PortableHidden plan;
    if (portable_) plan = PortablePlanner(rewriter.graph(), embedding, size, padded).Plan();
    for (size_t i = 0; i < rewriter.graph().nodes().size(); ++i) {
      const Node node = rewriter.graph().nodes()[i];
      for (const auto& [slot, role] : node.params) {
        const double offset = IsNorm(node) && slot == "scale" ? node.attrs->norm().offset() : 0;
        Pad(rewriter, role, TailPad(size, padded), offset == 0 ? 0 : -offset);
      }
      if (portable_) Repair(rewriter, node, plan, padded);
    }
    if (plan.tied.empty()) return absl::OkStatus();
    const WeightPtr rows = rewriter.graph().param(rewriter.graph().node(site.node), "table").program;
    SetProgram(rewriter, plan.tied, Transpose(rows, {1, 0}));
    return absl::OkStatus();
  }

 private:
  Judgement Judge(const Graph& graph, const Node& embedding) const {
    const ParamAxis& hidden = *FindAxis(graph, embedding, kHidden);
    if (hidden.size % multiple_ == 0) return Judgement::Native();
    if (Judgement growth = JudgeGrowth(kHidden, RoundUp(hidden.size, multiple_)); growth.refused())
      return growth;
    for (const auto& [role, param] : graph.params()) {
      for (const ParamAxis& axis : param.type.axes) {
        if (axis.name != kHidden || (axis.size == hidden.size && axis.logical == hidden.logical)) continue;
        return Judgement::Refused(
            absl::StrCat("its stream is ", hidden.size, " wide, ", role, " has ", axis.size));
      }
    }
    for (const auto& [name, value] : graph.outputs()) {
      if (HasHidden(graph.node(value).type)) {
        return Judgement::Refused(absl::StrCat("the output ", name, " is the stream itself"));
      }
    }
    for (const Node& node : graph.nodes()) {
      Judgement verdict = JudgeNode(graph, node);
      if (verdict.refused()) return verdict;
    }
    for (const Bundle& bundle : graph.bundles()) {
      const ParamType& type = graph.FindParam(bundle.members[0])->type;
      const int joined = bundle.arrangement == Bundle::Arrangement::kConcat
                             ? type.lead + type.in
                             : static_cast<int>(type.axes.size()) - 1;
      if (type.axes[joined].name == kHidden) {
        return Judgement::Refused(absl::StrCat(bundle.role, " is joined along the stream"));
      }
    }
    if (!portable_) return Judgement::Fits();
    std::string refusal =
        PortablePlanner(graph, embedding, hidden.size, RoundUp(hidden.size, multiple_)).Plan().refusal;
    return refusal.empty() ? Judgement::Fits() : Judgement::Refused(std::move(refusal));
  }

  // What stands on the stream keeps zeros zero: composites through their parameters, sums by themselves.
  static Judgement JudgeNode(const Graph& graph, const Node& node) {
    const bool composite = Info(node.op).composite != nullptr && !Info(node.op).slots.empty();
    if (!composite && node.op != OpKind::kAdd && HasHidden(node.type)) {
      return Judgement::Refused(
          absl::StrCat(node.path, ", an ", Info(node.op).name, ", has the stream's width"));
    }
    if (!composite || node.op == OpKind::kEmbedding) return Judgement::Other();
    if (HasHidden(graph.node(node.operands[0]).type) == (IsNorm(node) || ReadsStream(graph, node))) {
      return Judgement::Other();
    }
    return Judgement::Refused(absl::StrCat(node.path, " reads the stream under another name"));
  }

  // A square kernel has the axis twice.
  static void Pad(Rewriter& rewriter, const std::string& role, const IndexMap& map, double fill) {
    const Param& param = *rewriter.graph().FindParam(role);
    ParamType type = param.type;
    WeightPtr program = param.program;
    for (size_t i = 0; i < type.axes.size(); ++i) {
      if (type.axes[i].name != kHidden) continue;
      type.axes[i].size = map.size();
      program = Take(program, static_cast<int64_t>(i), map, fill);
    }
    if (program != param.program) rewriter.SetParam(role, std::move(type), std::move(program));
  }

  static void Repair(Rewriter& rewriter, const Node& node, const PortableHidden& plan, int64_t padded) {
    OpAttrs attrs = *node.attrs;
    if (IsNorm(node)) {
      NormAttrs& norm = *attrs.mutable_norm();
      ScaleNorm(rewriter, node.Role("scale"), norm.offset(), plan.gains.at(node.id));
      norm.set_eps(norm.eps() * plan.eps);
      norm.set_norm_dim(padded);
      return rewriter.SetAttrs(node.id, attrs);
    }
    for (const auto& [slot, role] : node.params) {
      const ParamType& type = rewriter.graph().FindParam(role)->type;
      if (WritesStream(type)) {
        ScaleParam(rewriter, role, node.op == OpKind::kEmbedding ? plan.table : plan.writers);
      }
    }
    if (node.op != OpKind::kEmbedding || plan.embedding_scale == 0) return;
    attrs.mutable_embedding()->set_scale(plan.embedding_scale);
    rewriter.SetAttrs(node.id, attrs);
  }

  bool portable_;
  int64_t multiple_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakePadHidden(const TransformStep& step,
                                                         const TransformContext& context) {
  const PadHidden& params = step.pad_hidden();
  if (params.form() != NATIVE && params.form() != PORTABLE) {
    return Error(1505, "pad_hidden.form", "is missing", "give NATIVE or PORTABLE");
  }
  TWIN_ASSIGN_OR_RETURN(const int64_t multiple, NumberOrFact("pad_hidden.multiple", params.multiple(),
                                                             params.multiple_of_chip(), context.facts));
  return std::make_unique<PadHiddenTransform>(params.form(), multiple);
}

}  // namespace twinforge
