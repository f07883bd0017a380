#include <vector>

#include "tests/proof/seeded_bugs.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr char kPadVocab[] = "step { pad_vocab { multiple: 8 mask: SUPPRESS_TOKENS } }";
constexpr char kFold[] = "step { fold_norm_scale { } }";
constexpr char kPadFfn[] = "step { pad_ffn { multiple: 8 } }";

std::vector<int64_t> NextRow(int64_t size) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back((i + 1) % size);
  return order;
}

std::function<void(Rewriter&)> Norm(std::string path, std::function<void(NormAttrs&)> change) {
  return Attrs(std::move(path), [=](OpAttrs& attrs) { change(*attrs.mutable_norm()); });
}

std::vector<SeededBug> NormBugs() {
  return {
      {"wrong eps", "llama", kPadFfn, 1, "layers.1",
       Norm("layers.1.norm_in", [](NormAttrs& a) { a.set_eps(a.eps() * 10); })},
      {"offset of a norm's scale lost", "gemma2", kPadFfn, 1, "layers.1",
       Norm("layers.1.norm_in", [](NormAttrs& a) { a.set_offset(0); })},
      {"bias of a norm dropped", "gpt2", kPadFfn, 1, "layers.1", Dropped("layers.1.norm_in", "bias")},
      {"norm's scale folded twice", "llama", kFold, 1, "layers.1",
       Program("layers.1.mlp.up",
               [](const Graph&, const Param& p) {
                 const WeightPtr scale =
                     Source("model.layers.1.post_attention_layernorm.weight", DType::kF32, {12});
                 return Map(MapFn::kMul, p.program, Reshape(scale, {12, 1}));
               })},
      {"norm's scale folded into two of three kernels", "llama", kFold, 1, "layers.2",
       Program("layers.2.attn.k",
               [](const Graph&, const Param& p) {
                 const WeightPtr scale = Source("model.layers.2.input_layernorm.weight", DType::kF32, {12});
                 return Map(MapFn::kDiv, p.program, Reshape(scale, {12, 1, 1}));
               })},
  };
}

std::vector<SeededBug> EndBugs() {
  return {
      // A head of its own that lies beside the tied table, and that no loader takes.
      {"stale tied head", "llama_tied", kPadVocab, 1, "lm_head",
       Program("lm_head",
               [](const Graph&, const Param& p) {
                 return Transpose(Source("lm_head.weight", p.type.dtype, {24, 12}), {1, 0});
               })},
      {"tied head scaled along with the table", "llama_tied", kPadVocab, 1, "lm_head",
       Both(Both(Scaled("embed", 2), Scaled("lm_head", 2)),
            Attrs("embed", [](OpAttrs& attrs) { attrs.mutable_embedding()->set_scale(0.5); }))},
      {"unmasked vocabulary", "llama", kPadVocab, 1, "lm_head", Unpadded("lm_head", "vocab")},
      {"head off by one token", "qwen3", kPadVocab, 1, "lm_head", Reordered("lm_head", "vocab", NextRow)},
      {"embedding off by one token", "mixtral", kPadVocab, 1, "embed", Reordered("embed", "vocab", NextRow)},
      {"soft-cap of the logits lost", "gemma2", kPadVocab, 1, "lm_head",
       Attrs("lm_head", [](OpAttrs& attrs) { attrs.mutable_lm_head()->set_softcap(0); })},
      {"scale of the embedding lost", "gemma2", kPadVocab, 1, "embed",
       Attrs("embed", [](OpAttrs& attrs) { attrs.mutable_embedding()->clear_scale(); })},
      {"positions off by one", "gpt2", kPadVocab, 1, "embed",
       Attrs("embed", [](OpAttrs& attrs) { attrs.mutable_embedding()->set_position_offset(1); })},
      {"token types in another order", "bert", kPadFfn, 1, "embed",
       Reordered("embed.type_table", "types", NextRow)},
      {"bias of the head dropped", "bert_masked", kPadVocab, 1, "lm_head", Dropped("lm_head", "bias")},
  };
}

}  // namespace

std::vector<SeededBug> ModelBugs() {
  std::vector<SeededBug> bugs = NormBugs();
  for (SeededBug& bug : EndBugs()) bugs.push_back(std::move(bug));
  return bugs;
}

}  // namespace twinforge
