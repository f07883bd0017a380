#include "cost/compiled.h"

#include <string>

#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const CompiledShape kLlama8B = {
    .d_model = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .d_ff = 14336, .experts = 1, .gated = true};
const CompiledShape kLlama3B = {
    .d_model = 3072, .heads = 24, .kv_heads = 8, .head_dim = 128, .d_ff = 8192, .experts = 1, .gated = true};
const CompiledShape kNobody = {
    .d_model = 3072, .heads = 24, .kv_heads = 8, .head_dim = 128, .d_ff = 9216, .experts = 1, .gated = true};
const CompiledShape kGptOss = {
    .d_model = 2880, .heads = 64, .kv_heads = 8, .head_dim = 64, .d_ff = 2880, .experts = 32, .gated = true};
const CompiledShape kQwen7B = {
    .d_model = 3584, .heads = 28, .kv_heads = 4, .head_dim = 128, .d_ff = 18944, .experts = 1, .gated = true};

CompiledWord Word(const CompiledQuestion& question) {
  const absl::StatusOr<CompiledWord> word = WordOfCompiler(question);
  EXPECT_TRUE(word.ok()) << word.status();
  return word.value_or(CompiledWord{});
}

CompiledQuestion Ask(const char* chip, const char* rewrite, const CompiledShape& shape, int64_t to = 0) {
  return {.chip = chip, .rewrite = rewrite, .shape = shape, .to = to};
}

TEST(CompilersWord, IsTheModelsOwnRows) {
  const CompiledWord word = Word(Ask("v6e", "orient_weights", kLlama8B));
  EXPECT_EQ(word.source, CompiledSource::kRows);
  EXPECT_EQ(word.sign, -1);
  EXPECT_THAT(word.rows, ElementsAre("v6e llama8b decode8 qkv_oi_rest_io"));
  EXPECT_DOUBLE_EQ(word.low, 832007.0 / 887051 - 1);
  EXPECT_DOUBLE_EQ(word.high, word.low);
}

TEST(CompilersWord, ComesFromTheLaterTableToo) {
  const CompiledWord word = Word(Ask("v6e", "fuse_qkv", kLlama3B));
  EXPECT_EQ(word.source, CompiledSource::kRows);
  EXPECT_THAT(word.rows, ElementsAre("v6e llama3b decode8 fqkv"));
  EXPECT_DOUBLE_EQ(word.low, 497683.0 / 508203 - 1);
}

TEST(CompilersWord, SpansAllRowsThatAnswer) {
  // gpt-oss on v5e: the default layouts let copies of q, k, v vanish, chosen ones had none.
  const CompiledWord word = Word(Ask("v5e", "pad_head_dim", kGptOss, 128));
  EXPECT_EQ(word.source, CompiledSource::kRows);
  EXPECT_THAT(word.rows, ElementsAre("v5e gptoss decode8 hd128 auto", "v5e gptoss decode8 hd128"));
  EXPECT_LT(word.low, -0.02);
  EXPECT_GT(word.high, 0.04);
  EXPECT_EQ(word.sign, 0) << "rows of both signs decide nothing";
}

TEST(CompilersWord, AnswersForThePhaseThatWasAsked) {
  CompiledQuestion question = Ask("tpu7x", "orient_weights", kGptOss);
  EXPECT_EQ(Word(question).sign, -1);
  question.step = {.phase = Phase::kPrefill, .sequences = 1, .context = 512};
  const CompiledWord prefill = Word(question);
  EXPECT_EQ(prefill.sign, 1);
  EXPECT_THAT(prefill.rows, ElementsAre("7x gptoss prefill qkv_oi_rest_io"));
  question.step.context = 65536;
  EXPECT_NE(Word(question).source, CompiledSource::kRows) << "a prefill of 512 tokens says nothing of 65,536";
}

TEST(CompilersWord, TurningEverythingCopiesWeights) {
  CompiledQuestion question = Ask("v5e", "orient_weights", kLlama8B);
  EXPECT_EQ(Word(question).sign, -1);
  question.qkv_too = true;
  EXPECT_GT(Word(question).high, 0.2) << "unless the compiler chooses the layouts";
  question.shape = kNobody;
  const CompiledWord predicted = Word(question);
  EXPECT_EQ(predicted.source, CompiledSource::kPredicted);
  EXPECT_EQ(predicted.sign, 1);
}

TEST(CompilersWord, IsPredictedForAModelThatWasNotCompiled) {
  const CompiledWord word = Word(Ask("tpu7x", "orient_weights", kNobody));
  EXPECT_EQ(word.source, CompiledSource::kPredicted);
  EXPECT_EQ(word.sign, -1);
  EXPECT_LT(word.low, word.high);
  EXPECT_TRUE(word.rows.empty());
  EXPECT_THAT(word.note, HasSubstr("signs of this rewrite were right"));
  CompiledShape narrow = kNobody;
  narrow.head_dim = 64;
  EXPECT_EQ(Word(Ask("v6e", "pad_head_dim", narrow, 128)).sign, 1) << "the cache doubles";
}

TEST(CompilersWord, IsSilentRatherThanInvented) {
  // Pairs of experts went either way, so nothing is said of a model that was not compiled.
  CompiledShape experts = kGptOss;
  experts.d_model = 2048;
  const CompiledWord pairs = Word(Ask("v6e", "group_experts", experts, 2));
  EXPECT_EQ(pairs.source, CompiledSource::kUnknown);
  EXPECT_THAT(pairs.note, HasSubstr("signs of this rewrite were right"));
  EXPECT_EQ(Word(Ask("v6e", "group_experts", kGptOss, 2)).source, CompiledSource::kRows);
  CompiledQuestion prefill = Ask("v5p", "fuse_qkv", kNobody);
  prefill.step = {.phase = Phase::kPrefill, .sequences = 1, .context = 512};
  EXPECT_EQ(Word(prefill).source, CompiledSource::kUnknown) << "no prefill was compiled for v5p";
  for (const char* rewrite : {"fold_norms", "", "pad_head_dim", "pad_ffn", "group_experts"}) {
    const CompiledWord word = Word(Ask("v6e", rewrite, kLlama8B));  // the last three without a size
    EXPECT_EQ(word.source, CompiledSource::kUnknown) << rewrite;
    EXPECT_EQ(word.sign, 0);
    EXPECT_EQ(word.low, 0);
    EXPECT_EQ(word.high, 0);
    EXPECT_THAT(word.note, HasSubstr("never asked"));
  }
  EXPECT_EQ(Word(Ask("v4", "fuse_gate_up", kNobody)).source, CompiledSource::kPredicted);
  EXPECT_THAT(Word(Ask("v3", "fuse_qkv", kLlama8B)).note, HasSubstr("nothing was compiled"));
  EXPECT_THAT(Word(Ask("h100_sxm", "fuse_qkv", kLlama8B)).note, HasSubstr("nothing was compiled"));
}

TEST(CompilersWord, KnowsOneShardedModel) {
  CompiledQuestion question = Ask("v6e", "replicate_kv_heads", kQwen7B, 8);
  question.shards = 8;
  const CompiledWord word = Word(question);
  EXPECT_EQ(word.source, CompiledSource::kRows);
  EXPECT_EQ(word.sign, -1);
  EXPECT_DOUBLE_EQ(word.low, 182198.0 / 243204 - 1);   // layouts chosen by the compiler
  EXPECT_DOUBLE_EQ(word.high, 182198.0 / 239890 - 1);  // default layouts
  question.chip = "v5e";
  EXPECT_EQ(Word(question).source, CompiledSource::kUnknown);
  question.chip = "v6e";
  question.rewrite = "fuse_qkv";
  EXPECT_EQ(Word(question).source, CompiledSource::kUnknown);
}

TEST(CompilersWord, OfAHead) {
  const CompiledShape head = {.d_model = 768, .vocab = 50257};
  CompiledQuestion question = Ask("tpu7x", "pad_vocab", head, 50304);
  EXPECT_EQ(Word(question).sign, 1) << "[vocab, d] gains nothing from padding";
  question.in_out = true;
  const CompiledWord word = Word(question);
  EXPECT_EQ(word.source, CompiledSource::kRows);
  EXPECT_DOUBLE_EQ(word.low, 75157.0 / 90340 - 1);
  EXPECT_EQ(Word(Ask("tpu7x", "fuse_qkv", head)).source, CompiledSource::kUnknown);
}

TEST(CompilersWord, RefusesWhatIsNoLayer) {
  const auto code = [](const CompiledQuestion& question) {
    const auto word = WordOfCompiler(question);
    EXPECT_FALSE(word.ok());
    return word.ok() ? 0 : DiagnosticOf(word.status())->code;
  };
  EXPECT_EQ(code(Ask("v6f", "fuse_qkv", kLlama8B)), 1701);
  CompiledQuestion question = Ask("v6e", "fuse_qkv", {});
  EXPECT_EQ(code(question), 1703);
  for (int64_t CompiledShape::*field :
       {&CompiledShape::d_model, &CompiledShape::heads, &CompiledShape::kv_heads, &CompiledShape::head_dim,
        &CompiledShape::d_ff, &CompiledShape::experts}) {
    for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 62}) {
      question.shape = kLlama8B;
      question.shape.*field = bad;
      EXPECT_EQ(code(question), 1703) << bad;
    }
  }
  question.shape = kLlama8B;
  question.step.sequences = 0;
  EXPECT_EQ(code(question), 1703);
}

TEST(Kernels, TakeTheHeadDimsThatCompiled) {
  EXPECT_EQ(KernelAccepts("paged_attention", 64), KernelAnswer::kRefuses);
  EXPECT_EQ(KernelAccepts("paged_attention", 128), KernelAnswer::kAccepts);
  EXPECT_EQ(KernelAccepts("paged_attention", 256), KernelAnswer::kAccepts);
  EXPECT_EQ(KernelAccepts("ragged_paged_attention", 256), KernelAnswer::kRefuses);
  EXPECT_EQ(KernelAccepts("flash_attention", 80), KernelAnswer::kAccepts);
  EXPECT_EQ(KernelAccepts("flash_attention", 192), KernelAnswer::kRefuses);
  EXPECT_EQ(KernelAccepts("splash_attention", 192), KernelAnswer::kAccepts);
  EXPECT_EQ(KernelAccepts("megablox_gmm", 77), KernelAnswer::kAccepts);
  EXPECT_EQ(KernelAccepts("paged_attention", 512), KernelAnswer::kUnknown);
  EXPECT_EQ(KernelAccepts("paged_attention", -1), KernelAnswer::kUnknown);
  EXPECT_EQ(KernelAccepts("a_kernel", 128), KernelAnswer::kUnknown);
  EXPECT_EQ(KernelHeadDim("paged_attention", 80), 128);
  EXPECT_EQ(KernelHeadDim("flash_attention", 160), 256);
  EXPECT_EQ(KernelHeadDim("ragged_paged_attention", 192), 0);
  EXPECT_EQ(KernelHeadDim("a_kernel", 64), 0);
}

}  // namespace
}  // namespace twinforge
