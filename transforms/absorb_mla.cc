// Before                                   After  absorb_mla { }
//   k = latent k_b, v = latent v_b            q_lat = q_nope k_b^T
//   scores = q_nope k + q_rope k_rope         scores = q_lat latent + q_rope k_rope
//   out = (softmax(scores) v) o               out = ((softmax(scores) latent) v_b) o
//   cache: heads * (nope + rope + v)          cache: kv_lora + rope
//
// Why on a TPU. A decode step reads the whole cache. DeepSeek-V3 expanded holds 128 * (128 + 64 + 128) =
// 40,960 numbers per place and layer; its latents and rotary keys are 576, 71 times less. The multiplies grow
// ((512 + 64 + 512) per head and pair against 320), which decode, bound by bytes, does not notice. A long
// prefill does: there the plain form is cheaper, and a runtime may keep both.
//
// k_b and v_b stay parameters of their own and act on queries and on mixed latents when the model runs.
// Merging them into their neighbours beforehand would be exact too, and larger: W_q k_b is q_lora * heads *
// kv_lora, 100 M numbers a layer of DeepSeek-V3 where q_nope and k_b are 34 M, and a decode step reads
// weights as it reads the cache. Nothing non-linear stands between k_b and the scores (the norms come before
// it, rotary places have keys of their own), so the rewrite holds for every latent attention.
//
// Refuses. Sites split for tensor parallelism along the latent: a device would hold a part of each score.
//
// Fidelity. REASSOCIATED: the same products, summed in another order.
#include "absl/strings/str_cat.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

class AbsorbMlaTransform : public Transform {
 public:
  absl::string_view name() const override { return "absorb_mla"; }
  Fidelity fidelity() const override { return Fidelity::kReassociated; }

  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) {
      if (node.op != OpKind::kLatentAttention) return Judgement::Other();
      if (node.attrs->latent_attention().absorbed()) return Judgement::Native();
      for (const auto& [slot, role] : node.params) {
        const ParamType& type = graph.FindParam(role)->type;
        const int latent = type.Find("kv_lora");
        if (latent >= 0 && type.axes[latent].shards != 1) {
          return Judgement::Refused(absl::StrCat("kv_lora of ", role, " is split into ",
                                                 type.axes[latent].shards,
                                                 ": a device would hold a part of each score"));
        }
      }
      return Judgement::Fits();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    OpAttrs attrs = *rewriter.graph().node(site.node).attrs;
    attrs.mutable_latent_attention()->set_absorbed(true);
    rewriter.SetAttrs(site.node, attrs);
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeAbsorbMla(const TransformStep&, const TransformContext&) {
  return std::make_unique<AbsorbMlaTransform>();
}

}  // namespace twinforge
