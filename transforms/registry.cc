// The list of transforms: a new one is a file, a line here and a message in transforms.proto.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "transforms/transform.h"
#include "transforms/transforms.pb.h"

namespace twinforge {

using Made = absl::StatusOr<std::unique_ptr<Transform>>;
Made MakeOrientWeights(const TransformStep&, const TransformContext&);
Made MakePadHeadDim(const TransformStep&, const TransformContext&);
Made MakePadHidden(const TransformStep&, const TransformContext&);
Made MakePadVocab(const TransformStep&, const TransformContext&);
Made MakePadFfn(const TransformStep&, const TransformContext&);
Made MakePadHeads(const TransformStep&, const TransformContext&);
Made MakeReplicateKvHeads(const TransformStep&, const TransformContext&);
Made MakeFuseQkv(const TransformStep&, const TransformContext&);
Made MakeFuseGateUp(const TransformStep&, const TransformContext&);
Made MakeSplitBundles(const TransformStep&, const TransformContext&);
Made MakeStackExperts(const TransformStep&, const TransformContext&);
Made MakeGroupExperts(const TransformStep&, const TransformContext&);
Made MakeStackLayers(const TransformStep&, const TransformContext&);
Made MakeShardByRole(const TransformStep&, const TransformContext&);
Made MakeAbsorbMla(const TransformStep&, const TransformContext&);
Made MakeReorderRope(const TransformStep&, const TransformContext&);
Made MakeFoldNormScale(const TransformStep&, const TransformContext&);
Made MakeMergeLora(const TransformStep&, const TransformContext&);
Made MakeCastWeights(const TransformStep&, const TransformContext&);
Made MakeKeepNOfM(const TransformStep&, const TransformContext&);
Made MakeLowerComposites(const TransformStep&, const TransformContext&);
Made MakeRaiseComposites(const TransformStep&, const TransformContext&);
Made MakeAbsorbWeightOps(const TransformStep&, const TransformContext&);

absl::string_view FidelityName(Fidelity fidelity) {
  switch (fidelity) {
    case Fidelity::kRetrain:
      return "RETRAIN";
    case Fidelity::kBounded:
      return "BOUNDED";
    case Fidelity::kReassociated:
      return "REASSOCIATED";
    case Fidelity::kMoved:
      return "MOVED";
  }
  return "";
}

std::string BoundText(double bound) {
  if (bound == 0) return "";
  int exponent = 0;
  const double digits = std::frexp(bound, &exponent);
  return digits == 0.5 ? absl::StrCat("2^", exponent - 1) : absl::StrFormat("%.3g", bound);
}

double JoinBounds(double first, double second) { return first + second + first * second; }

absl::Span<const TransformInfo> AllTransforms() {
  static const std::vector<TransformInfo>& all = *new std::vector<TransformInfo>{
      {"orient_weights", "choose per role whether a kernel lies [out, in] or [in, out]", MakeOrientWeights},
      {"pad_head_dim", "widen every attention head to a multiple, exactly", MakePadHeadDim},
      {"pad_hidden", "widen the residual stream to a multiple, exactly", MakePadHidden},
      {"pad_vocab", "add masked tokens until the vocabulary is a multiple", MakePadVocab},
      {"pad_ffn", "widen feed-forward blocks with channels that say nothing", MakePadFfn},
      {"pad_heads", "add silent query heads inside every kv group", MakePadHeads},
      {"replicate_kv_heads", "repeat kv heads in place until the shards divide them", MakeReplicateKvHeads},
      {"fuse_qkv", "store q, k and v as one tensor, shard by shard", MakeFuseQkv},
      {"fuse_gate_up", "store gate and up as one tensor, shard by shard", MakeFuseGateUp},
      {"split_bundles", "store apart what lies fused in one tensor", MakeSplitBundles},
      {"stack_experts", "store all experts of a layer as one tensor", MakeStackExperts},
      {"group_experts", "join neighbouring experts into wider ones", MakeGroupExperts},
      {"stack_layers", "store equal layers as one tensor per role", MakeStackLayers},
      {"shard_by_role", "say along which axes devices split parameters", MakeShardByRole},
      {"absorb_mla", "take the scores of latent attention among the latents", MakeAbsorbMla},
      {"reorder_rope", "turn interleaved rotary pairs into halves, or back", MakeReorderRope},
      {"fold_norm_scale", "multiply a norm's scale into the kernels that read it", MakeFoldNormScale},
      {"merge_lora", "add a low-rank adapter to the kernels it was trained for", MakeMergeLora},
      {"cast_weights", "store parameters in another floating type", MakeCastWeights},
      {"keep_n_of_m", "keep the n largest of every m weights", MakeKeepNOfM},
      {"lower_composites", "write composites out as primitives", MakeLowerComposites},
      {"raise_composites", "fold primitives back into the composites that they spell", MakeRaiseComposites},
      {"absorb_weight_ops", "move what a graph does to a parameter into its weight program",
       MakeAbsorbWeightOps},
  };
  return all;
}

Made MakeTransform(const TransformStep& step, const TransformContext& context) {
  const auto* set = step.GetDescriptor()->FindOneofByName("transform");
  const auto* field = step.GetReflection()->GetOneofFieldDescriptor(step, set);
  if (field == nullptr) {
    return Error(1504, "", "the step names no transform", "write step { pad_vocab { multiple: 128 } }");
  }
  for (const TransformInfo& info : AllTransforms()) {
    if (info.name == field->name()) return info.make(step, context);
  }
  return Error(1504, field->name(), "no transform has this name");
}

}  // namespace twinforge
