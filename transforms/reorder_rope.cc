// Before  interleaved pairs                After  reorder_rope { style: TO_HALVES }
//   q row of a head  x0 y0 x1 y1 x2 y2       x0 x1 x2 y0 y1 y2
//
// Why on a TPU. Rotating interleaved pairs reads every other lane, a strided access on a machine whose
// lanes are its width; halves are two contiguous slices. Done once, on the weights, instead of at every step.
//
// Exact because q and k are permuted alike within each head, so every product of the two has the same terms.
// Their biases and per-place norms move with them; v, which rotary never touches, and the places past
// rotary_dim stay.
//
// Refuses. Nothing: a rotary width is even.
//
// Fidelity. MOVED.
#include "base/diagnostic.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

class ReorderRopeTransform : public Transform {
 public:
  explicit ReorderRopeTransform(Rope::Style to) : to_(to) {}

  absl::string_view name() const override { return "reorder_rope"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) {
      const Rope* rope = RopeOf(node);
      if (rope == nullptr || rope->style() == Rope::ABSENT) return Judgement::Other();
      return rope->style() == to_ ? Judgement::Native() : Judgement::Fits();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Node& node = rewriter.graph().node(site.node);
    OpAttrs attrs = *node.attrs;
    if (node.op == OpKind::kAttention) {
      attrs.mutable_attention()->mutable_rope()->set_style(to_);
      for (const char* slot : {"q", "k", "q_bias", "k_bias", "q_norm", "k_norm"})
        Permute(rewriter, node, slot, "head_dim");
    } else {
      attrs.mutable_latent_attention()->mutable_rope()->set_style(to_);
      for (const char* slot : {"q_rope", "k_rope", "k_rope_bias"}) Permute(rewriter, node, slot, "rope_dim");
    }
    rewriter.SetAttrs(site.node, attrs);
    return absl::OkStatus();
  }

 private:
  static const Rope* RopeOf(const Node& node) {
    if (node.op == OpKind::kAttention) return &node.attrs->attention().rope();
    if (node.op == OpKind::kLatentAttention) return &node.attrs->latent_attention().rope();
    return nullptr;
  }

  // Places [0, rotary) reordered, the rest kept.
  IndexMap Order(int64_t rotary, int64_t size) const {
    const int64_t half = rotary / 2;
    const IndexMap rest = IndexMap::Slice(rotary, size - rotary);
    if (to_ == Rope::HALVES)
      return IndexMap::Join({IndexMap::Slice(0, half, 2), IndexMap::Slice(1, half, 2), rest});
    return IndexMap::Join({IndexMap::Tile(IndexMap::Slice(0, 2, half), half, 1), rest});
  }

  void Permute(Rewriter& rewriter, const Node& node, absl::string_view slot, absl::string_view axis) const {
    if (!node.Has(slot)) return;
    const std::string role(node.Role(slot));
    const int64_t size = rewriter.graph().FindParam(role)->type.Get(axis).size;
    MapAxis(rewriter, role, axis, Order(RopeOf(node)->rotary_dim(), size));
  }

  Rope::Style to_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeReorderRope(const TransformStep& step,
                                                           const TransformContext&) {
  const ReorderRope::Style style = step.reorder_rope().style();
  if (style != ReorderRope::TO_HALVES && style != ReorderRope::TO_INTERLEAVED) {
    return Error(1505, "reorder_rope.style", "is missing", "give TO_HALVES or TO_INTERLEAVED");
  }
  return std::make_unique<ReorderRopeTransform>(style == ReorderRope::TO_HALVES ? Rope::HALVES
                                                                                : Rope::INTERLEAVED);
}

}  // namespace twinforge
