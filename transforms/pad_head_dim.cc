// Before  head_dim 96                  After  pad_head_dim { multiple: 128 form: NATIVE }
//   q, k, v  [.. heads, head_dim=96]     [.. heads, head_dim=128~96]    live 0..95, zeros behind
//   o        [heads, head_dim=96 -> ..]  [heads, head_dim=128~96 -> ..]
//                                      After  pad_head_dim { multiple: 128 form: PORTABLE }
//   q, k                                 live 0..47, 16 zeros, live 48..95, 16 zeros
//   v, o                                 live 0..95, zeros behind
//   rope theta, softmax scale            theta^(128/96), 128^-0.5; q times sqrt(128/96)
//
// Why on a TPU. The paged attention kernels take head_dim by 128 (64 has a kernel of its own) and
// would pad keys, values and the cache at every step. Plain multiplies gain nothing from it: a recipe
// asks for this where the kernel demands it.
//
// NATIVE. Zeros at the tail change no product. Rotary width, its frequencies and the softmax scale are
// attributes of the node and stay; q_norm and k_norm divide by the *logical* head_dim
// (AttentionAttrs.qk_norm_dim), so they stay exact as well. A runtime that reads those facts computes the
// same; one that derives them from head_dim does not, and exporters to such a layout refuse.
//
// PORTABLE. For a runtime that derives everything from head_dim = P where the source had D; s = sqrt(P/D).
//   - Rotary over the whole head, halves: zeros after each half, theta' = theta^(P/D), since then
//     theta'^(-2i/P) = theta^(-2i/D) for each live i. Interleaved: zeros at the tail, the same theta'.
//   - Rotary over a part of the head: zeros at the tail; its width and theta stay. No rotary: zeros at the
//   tail.
//   - Softmax scale that the runtime derives as P^-0.5: W_q and its bias times s. One that a key holds:
//   nothing. With
//     `carrier` the scale becomes such a key, and W_q keeps its bits; the exporter finds
//     the config that can say it, or refuses.
//   - q_norm and k_norm: the mean now divides by P, and eps is shared by all norms of the config, so it can't
//     change. W_q and W_k (and biases) times s restore the mean; the scale of k_norm is divided by s;
//     that of q_norm stays where the softmax scale wants the factor anyway, else it is divided too.
//     A norm stored as w for (c + w): the sum is scaled, c subtracted again, pads hold -c.
//   - Latent attention: q and k are [nope | rope]; zeros between the two, v at its tail, q times s with D and
//   P the
//     widths of both together.
// Frequency scaling: linear and llama3 act on the frequencies, which are the same. YaRN's correction range is
// the same too unless its end is clamped to the rotary width.
//
// Refuses (PORTABLE). Dynamic NTK, whose base depends on the rotary width; longrope, whose lists of factors
// have one entry per pair and are checked by their length; a clamped YaRN; an odd half; a head that is padded
// natively already; a carrier beside q_norm or k_norm. Whether head_dim is a key of the config
// at all is the layout's affair: the exporter refuses there.
//
// Fidelity. NATIVE: MOVED. PORTABLE: REASSOCIATED where weights are scaled, MOVED at sites where they are
// not; BOUNDED by half a unit where what is scaled is stored in bf16 or f16 and s is no power of two.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/rope.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

// The runtime derives the scale from the widths: the node has to agree before it can be padded.
bool AgreesWithRuntime(const Graph& graph, const Node& node, double scale) {
  const double derived = DefaultScale(graph, node);
  return std::abs(scale - derived) <= 1e-9 * derived;
}

// Whether YaRN's correction range ends at the last place of the rotary width instead of where its formula
// says.
bool YarnIsClamped(const Rope& rope) {
  const RopeScaling& scaling = rope.scaling();
  const double beta_slow = scaling.beta_slow() > 0 ? scaling.beta_slow() : 1;
  const double turns =
      static_cast<double>(scaling.original_max_position_embeddings()) / (beta_slow * 2 * M_PI);
  double end = static_cast<double>(rope.rotary_dim()) * std::log(turns) / (2 * std::log(rope.theta()));
  if (!scaling.has_truncate() || scaling.truncate()) end = std::ceil(end);
  return end > static_cast<double>(rope.rotary_dim() - 1);
}

class PadHeadDimTransform : public Transform {
 public:
  PadHeadDimTransform(Form form, int64_t multiple, bool carrier)
      : portable_(form == PORTABLE), multiple_(multiple), carrier_(carrier) {}

  absl::string_view name() const override { return "pad_head_dim"; }
  Fidelity fidelity() const override {
    return portable_ && !carrier_ ? Fidelity::kReassociated : Fidelity::kMoved;
  }
  Fidelity SiteFidelity(const Graph& graph, const Site& site) const override {
    if (!portable_) return Fidelity::kMoved;
    const Node& node = graph.node(site.node);
    const Factors factors = FactorsOf(node, Widths(graph, node));
    return factors.q == 1 && factors.k == 1 ? Fidelity::kMoved : Fidelity::kReassociated;
  }
  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) {
      if (node.op != OpKind::kAttention && node.op != OpKind::kLatentAttention) return Judgement::Other();
      const HeadWidths widths = Widths(graph, node);
      if (widths.padded == widths.size && widths.v_padded == widths.v_size) return Judgement::Native();
      if (Judgement growth = JudgeWidths(graph, node, widths); growth.refused() || !portable_) return growth;
      return node.op == OpKind::kAttention ? JudgePortable(graph, node, widths)
                                           : JudgePortableLatent(graph, node);
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Node& node = rewriter.graph().node(site.node);
    if (node.op == OpKind::kLatentAttention) {
      RewriteLatent(node, rewriter);
    } else if (portable_) {
      RewritePortable(node, rewriter);
    } else {
      const HeadWidths widths = Widths(rewriter.graph(), node);
      MapAxisEverywhere(rewriter, site.node, "head_dim", TailPad(widths.size, widths.padded));
    }
    return absl::OkStatus();
  }

 private:
  // The width that q and k are multiplied over, and v's; in latent attention the first is nope + rope.
  struct HeadWidths {
    int64_t size = 0, padded = 0;
    int64_t v_size = 0, v_padded = 0;
    double ratio() const { return static_cast<double>(padded) / static_cast<double>(size); }
  };
  // What the portable form multiplies W_q, W_k and the norms' scales by.
  struct Factors {
    double q = 1, k = 1, q_norm = 1, k_norm = 1;
  };

  HeadWidths Widths(const Graph& graph, const Node& node) const {
    HeadWidths widths;
    if (node.op == OpKind::kAttention) {
      widths.size = widths.v_size = AxisSize(graph, node, "head_dim");
    } else {
      widths.size = AxisSize(graph, node, "nope_dim") + AxisSize(graph, node, "rope_dim");
      widths.v_size = AxisSize(graph, node, "v_head_dim");
    }
    widths.padded = RoundUp(widths.size, multiple_);
    widths.v_padded = RoundUp(widths.v_size, multiple_);
    return widths;
  }

  static Judgement JudgeWidths(const Graph& graph, const Node& node, const HeadWidths& widths) {
    if (node.op == OpKind::kAttention) return JudgeGrowth("head_dim", widths.padded);
    const int64_t nope = AxisSize(graph, node, "nope_dim");
    return Join(JudgeGrowth("nope_dim", nope + widths.padded - widths.size),
                JudgeGrowth("v_head_dim", widths.v_padded));
  }

  Factors FactorsOf(const Node& node, const HeadWidths& widths) const {
    const double s = std::sqrt(widths.ratio());
    Factors factors;
    if (node.op == OpKind::kLatentAttention) {
      if (!carrier_ && node.attrs->latent_attention().scale_rule() == AttentionAttrs::HEAD_DIM) factors.q = s;
      return factors;
    }
    const bool derived = !carrier_ && node.attrs->attention().scale_rule() == AttentionAttrs::HEAD_DIM;
    if (derived || node.Has("q_norm")) factors.q = s;
    if (!derived && node.Has("q_norm")) factors.q_norm = 1 / s;
    if (node.Has("k_norm")) {
      factors.k = s;
      factors.k_norm = 1 / s;
    }
    return factors;
  }

  Judgement JudgePortable(const Graph& graph, const Node& node, const HeadWidths& widths) const {
    const AttentionAttrs& attrs = node.attrs->attention();
    const int64_t logical = FindAxis(graph, node, "head_dim")->logical;
    if (attrs.scale_rule() == AttentionAttrs::HEAD_DIM && !AgreesWithRuntime(graph, node, attrs.scale())) {
      return Judgement::Refused(absl::StrCat("its softmax scale ", attrs.scale(),
                                             " is not what a plain runtime derives from ", widths.size,
                                             " places: padded natively before"));
    }
    if (carrier_ && (node.Has("q_norm") || node.Has("k_norm"))) {
      return Judgement::Refused(
          "q_norm and k_norm need W_q and W_k scaled, which a carrier is there to avoid");
    }
    if ((node.Has("q_norm") || node.Has("k_norm")) && NormDim(attrs, logical) != widths.size) {
      return Judgement::Refused(absl::StrCat("its q and k norms divide by ", NormDim(attrs, logical),
                                             " places of ", widths.size, ": padded natively before"));
    }
    return JudgeRope(attrs.rope(), widths);
  }

  static int64_t NormDim(const AttentionAttrs& attrs, int64_t logical) {
    return attrs.qk_norm_dim() != 0 ? attrs.qk_norm_dim() : logical;
  }

  static Judgement JudgeRope(const Rope& rope, const HeadWidths& widths) {
    if (rope.style() == Rope::ABSENT) return Judgement::Fits();
    if (rope.scaling().kind() == RopeScaling::DYNAMIC) {
      return Judgement::Refused("dynamic NTK computes its base from the rotary width");
    }
    if (rope.rotary_dim() < widths.size) return Judgement::Fits();
    if (widths.padded % 2 != 0)
      return Judgement::Refused(absl::StrCat(widths.padded, " places have no halves"));
    const double theta = std::pow(rope.theta(), widths.ratio());
    if (!(theta <= std::numeric_limits<float>::max())) {
      return Judgement::Refused(
          absl::StrCat("its rotary base ", rope.theta(), " would become ", theta, ", more than f32 holds"));
    }
    if (rope.scaling().kind() == RopeScaling::LONGROPE) {
      return Judgement::Refused(
          "longrope lists one factor per rotary pair, and loaders check the lists' length");
    }
    if (rope.scaling().kind() == RopeScaling::YARN && YarnIsClamped(rope)) {
      return Judgement::Refused("YaRN's correction range is clamped to the rotary width, which would change");
    }
    return Judgement::Fits();
  }

  // Rotary places are not padded here, so theirs is no question but for a base that follows the config.
  static Judgement JudgePortableLatent(const Graph& graph, const Node& node) {
    const LatentAttentionAttrs& attrs = node.attrs->latent_attention();
    if (attrs.scale_rule() == AttentionAttrs::HEAD_DIM && !AgreesWithRuntime(graph, node, attrs.scale())) {
      return Judgement::Refused(absl::StrCat("its softmax scale ", attrs.scale(),
                                             " is not what a plain runtime derives: padded natively before"));
    }
    return Judgement::Fits();
  }

  void RewriteLatent(const Node& node, Rewriter& rewriter) const {
    const HeadWidths widths = Widths(rewriter.graph(), node);
    const int64_t nope = AxisSize(rewriter.graph(), node, "nope_dim");
    MapAxisEverywhere(rewriter, node.id, "nope_dim", TailPad(nope, nope + widths.padded - widths.size));
    MapAxisEverywhere(rewriter, node.id, "v_head_dim", TailPad(widths.v_size, widths.v_padded));
    if (!portable_) return;
    const Factors factors = FactorsOf(node, widths);
    OpAttrs attrs = *node.attrs;
    LatentAttentionAttrs& latent = *attrs.mutable_latent_attention();
    if (factors.q != 1) {
      ScaleParam(rewriter, node.Role("q_nope"), factors.q);
      ScaleParam(rewriter, node.Role("q_rope"), factors.q);
      latent.set_scale(
          DefaultLatentScale(widths.padded, latent.rope().scaling()));  // what the runtime derives
    } else if (widths.padded != widths.size) {
      latent.set_scale_rule(AttentionAttrs::EXPLICIT);
    }
    rewriter.SetAttrs(node.id, attrs);
  }

  // Where live places go along head_dim of q and k.
  static IndexMap QkMap(const Rope& rope, const HeadWidths& widths) {
    if (rope.style() != Rope::HALVES || rope.rotary_dim() < widths.size)
      return TailPad(widths.size, widths.padded);
    return IndexMap::Tile(TailPad(widths.size / 2, widths.padded / 2), 2, widths.size / 2);
  }

  void RewritePortable(const Node& node, Rewriter& rewriter) const {
    const HeadWidths widths = Widths(rewriter.graph(), node);
    const Factors factors = FactorsOf(node, widths);
    OpAttrs attrs = *node.attrs;
    AttentionAttrs& attention = *attrs.mutable_attention();
    const IndexMap map = QkMap(attention.rope(), widths);
    const IndexMap tail = TailPad(widths.size, widths.padded);

    MapScaled(rewriter, node, "q", map, factors.q);
    MapScaled(rewriter, node, "q_bias", map, factors.q);
    MapScaled(rewriter, node, "k", map, factors.k);
    MapScaled(rewriter, node, "k_bias", map, factors.k);
    for (const char* slot : {"v", "v_bias", "o"}) MapScaled(rewriter, node, slot, tail, 1);
    MapNorm(rewriter, node, "q_norm", map, attention.qk_norm_offset(), factors.q_norm);
    MapNorm(rewriter, node, "k_norm", map, attention.qk_norm_offset(), factors.k_norm);

    if (node.Has("q_norm") || node.Has("k_norm")) attention.set_qk_norm_dim(widths.padded);
    if (carrier_) attention.set_scale_rule(AttentionAttrs::EXPLICIT);
    if (attention.scale_rule() == AttentionAttrs::HEAD_DIM) {
      attention.set_scale(std::pow(static_cast<double>(widths.padded), -0.5));
    }
    Rope& rope = *attention.mutable_rope();
    if (rope.style() != Rope::ABSENT && rope.rotary_dim() == widths.size) {
      rope.set_theta(std::pow(rope.theta(), widths.ratio()));
      rope.set_rotary_dim(widths.padded);
    }
    rewriter.SetAttrs(node.id, attrs);
  }

  static void MapScaled(Rewriter& rewriter, const Node& node, absl::string_view slot, const IndexMap& map,
                        double factor) {
    if (!node.Has(slot)) return;
    const std::string role(node.Role(slot));
    MapAxis(rewriter, role, "head_dim", map);
    ScaleParam(rewriter, role, factor);
  }

  // A norm stored as w for (offset + w).
  static void MapNorm(Rewriter& rewriter, const Node& node, absl::string_view slot, const IndexMap& map,
                      double offset, double factor) {
    if (!node.Has(slot)) return;
    const std::string role(node.Role(slot));
    if (offset == 0) return MapScaled(rewriter, node, slot, map, factor);
    MapAxis(rewriter, role, "head_dim", map, -offset);
    ScaleNorm(rewriter, role, offset, factor);
  }

  bool portable_;
  int64_t multiple_;
  bool carrier_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakePadHeadDim(const TransformStep& step,
                                                          const TransformContext& context) {
  const PadHeadDim& params = step.pad_head_dim();
  if (params.form() != NATIVE && params.form() != PORTABLE) {
    return Error(1505, "pad_head_dim.form", "is missing", "give NATIVE or PORTABLE");
  }
  if (params.carrier() && params.form() != PORTABLE) {
    return Error(1505, "pad_head_dim.carrier", "has a meaning for form: PORTABLE only");
  }
  TWIN_ASSIGN_OR_RETURN(const int64_t multiple, NumberOrFact("pad_head_dim.multiple", params.multiple(),
                                                             params.multiple_of_chip(), context.facts));
  return std::make_unique<PadHeadDimTransform>(params.form(), multiple, params.carrier());
}

}  // namespace twinforge
