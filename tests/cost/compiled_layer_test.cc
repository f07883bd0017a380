#include "cost/compiled_layer.h"

#include <set>
#include <string>

#include "cost/compiled.pb.h"
#include "cost/compiled_rows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

const CompiledShape kLlama8B = {
    .d_model = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .d_ff = 14336, .experts = 1, .gated = true};
const CompiledShape kGptOss = {
    .d_model = 2880, .heads = 64, .kv_heads = 8, .head_dim = 64, .d_ff = 2880, .experts = 32, .gated = true};

double At(const CompiledTerms& terms, CompiledTerm term) { return terms[static_cast<int>(term)]; }

TEST(CompiledLayer, CountsAWholeLayer) {
  const CompiledTerms terms = TermsOfLayer({.shape = kLlama8B}, {}, 256);
  EXPECT_EQ(At(terms, CompiledTerm::kStep), 1);
  EXPECT_EQ(At(terms, CompiledTerm::kProduct), 7);
  EXPECT_EQ(At(terms, CompiledTerm::kOutLanes), 0) << "[out, in] needs no padding, so it stays";
  EXPECT_EQ(At(terms, CompiledTerm::kInLanes),
            2.0 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3.0 * 4096 * 14336));
  EXPECT_EQ(At(terms, CompiledTerm::kSharedCacheWide), 2.0 * 8 * 8 * 2048 * 128 * 2);
  EXPECT_EQ(At(terms, CompiledTerm::kLoneCache), 0);
  EXPECT_EQ(At(terms, CompiledTerm::kTurnedWeights), 0);
  EXPECT_EQ(At(terms, CompiledTerm::kMatrixRows), 0) << "decode";
}

TEST(CompiledLayer, SeesWhichSideLiesAlongTheLanes) {
  CompiledForm form = {.shape = kLlama8B, .rest_in_out = true};
  const CompiledTerms rest = TermsOfLayer(form, {}, 256);
  EXPECT_EQ(At(rest, CompiledTerm::kInLanes), 2.0 * (4096 * 4096 + 2 * 1024 * 4096));
  EXPECT_EQ(At(rest, CompiledTerm::kTurnedWeights), 0);
  form.qkv_in_out = true;
  const CompiledTerms all = TermsOfLayer(form, {}, 256);
  EXPECT_EQ(At(all, CompiledTerm::kInLanes), 0);
  EXPECT_EQ(At(all, CompiledTerm::kTurnedWeights), 2.0 * (4096 * 4096 + 2 * 1024 * 4096));
  EXPECT_EQ(At(all, CompiledTerm::kTurnedKey), 2.0 * 1024 * 4096);
  form.compiler_layouts = true;
  EXPECT_EQ(At(TermsOfLayer(form, {}, 256), CompiledTerm::kTurnedWeights), 0) << "nothing is copied then";
  form = {.shape = kLlama8B, .qkv_in_out = true, .fused_qkv = true};
  EXPECT_EQ(At(TermsOfLayer(form, {}, 256), CompiledTerm::kTurnedWeights), 0);
}

TEST(CompiledLayer, FollowsTheLayoutThatPadsLeast) {
  // 2880 is 22.5 times 128: q [4096, 2880] is turned round, experts [32, 2880, 2880] pad either way and stay.
  const CompiledTerms terms = TermsOfLayer({.shape = kGptOss}, {}, 256);
  EXPECT_EQ(At(terms, CompiledTerm::kTurnedWeights), 2.0 * 2880 * (4096 + 512 + 512));
  EXPECT_EQ(At(terms, CompiledTerm::kExpertInLanes), 3 * 2.0 * 32 * 2880 * 2944);
  EXPECT_EQ(At(terms, CompiledTerm::kExpertOutLanes), 0);
  // Fused, gate and up are 5760 wide, which needs no padding along the lanes.
  const CompiledTerms fused = TermsOfLayer({.shape = kGptOss, .fused_gate_up = true}, {}, 256);
  EXPECT_EQ(At(fused, CompiledTerm::kExpertOutLanes), 2.0 * 32 * 2880 * 5760);
  EXPECT_EQ(At(fused, CompiledTerm::kExpertInLanes), 2.0 * 32 * 2880 * 2944);
}

TEST(CompiledLayer, PrefillCountsRowsAndScores) {
  const CompiledStep prefill = {.phase = Phase::kPrefill, .sequences = 1, .context = 512};
  const CompiledTerms terms = TermsOfLayer({.shape = kLlama8B}, prefill, 256);
  EXPECT_EQ(At(terms, CompiledTerm::kScores), 32.0 * 512 * 512);
  EXPECT_EQ(At(terms, CompiledTerm::kScoreMacs), 32.0 * 512 * 512 * 128);
  EXPECT_EQ(At(terms, CompiledTerm::kSharedCacheWide), 0);
  // q: 16 x 16 folds of 512 rows, or of fewer folds over the other operand; never below the work of 256 x
  // 256.
  EXPECT_GE(At(terms, CompiledTerm::kMatrixRows) * 256 * 256, 512.0 * (2 * 4096 * 4096 + 2 * 1024 * 4096));
}

TEST(CompiledLayer, HeadsAndProductsAreOneProduct) {
  const CompiledShape head = {.d_model = 768, .vocab = 50257};
  const CompiledTerms terms = TermsOfLayer({.shape = head}, {}, 256);
  EXPECT_EQ(At(terms, CompiledTerm::kProduct), 1);
  EXPECT_EQ(At(terms, CompiledTerm::kStep), 0);
  EXPECT_EQ(At(terms, CompiledTerm::kInLanes), 2.0 * 50264 * 768);
  const CompiledProduct one = {.m = 1, .k = 4096, .n = 4096};
  EXPECT_EQ(At(TermsOfProduct(one, 128), CompiledTerm::kOneRow), 4096.0 * 4096);
  CompiledProduct narrow = {.m = 128, .k = 1024, .n = 1024, .weight_bits = 8};
  EXPECT_EQ(At(TermsOfProduct(narrow, 128), CompiledTerm::kConverted), 1024.0 * 1024);
  const double converted = At(TermsOfProduct(narrow, 128), CompiledTerm::kMatrixRows);
  narrow.native = true;
  EXPECT_EQ(At(TermsOfProduct(narrow, 128), CompiledTerm::kConverted), 0);
  EXPECT_EQ(At(TermsOfProduct(narrow, 128), CompiledTerm::kMatrixRows), converted / 2);
}

TEST(CompiledLayer, EachTermHasAName) {
  std::set<std::string> names;
  for (int i = 0; i < kCompiledTermCount; ++i) {
    const absl::string_view name = Name(static_cast<CompiledTerm>(i));
    EXPECT_TRUE(names.insert(std::string(name.data(), name.size())).second);
  }
  EXPECT_EQ(names.count(""), 0u);
}

TEST(CompiledRows, AreTheWholeTable) {
  EXPECT_EQ(CompiledRows().size(), 631u);
  int with_form = 0;
  int with_source = 0;
  std::set<std::string> known;
  for (const CompiledModelFile& model : Facts().model()) known.insert(model.name());
  for (const CompiledRow& row : CompiledRows()) {
    EXPECT_EQ(known.count(row.model), 1u) << row.model;
    EXPECT_GT(row.cycles, 0) << row.Key();
    with_form += FormOfRow(row).has_value();
    if (row.source < 0) continue;
    ++with_source;
    const CompiledRow& source = CompiledRows()[row.source];
    EXPECT_EQ(source.model, row.model);
    EXPECT_EQ(source.mode, row.mode);
    EXPECT_EQ(source.phase, row.phase);
    EXPECT_EQ(source.generation, row.generation);
  }
  EXPECT_EQ(with_form, 574);
  EXPECT_EQ(with_source, 601);
}

TEST(CompiledRows, WordsBecomeForms) {
  CompiledRow row = {
      .generation = "v6e", .model = "gptoss", .phase = "decode8", .rewrite = "rest_io+pairs+fgu"};
  row.mode = "auto";
  const auto form = FormOfRow(row);
  ASSERT_TRUE(form.has_value());
  EXPECT_TRUE(form->rest_in_out && form->fused_gate_up && form->compiler_layouts);
  EXPECT_FALSE(form->qkv_in_out || form->fused_qkv);
  EXPECT_EQ(form->shape.experts, 16);
  EXPECT_EQ(form->shape.d_ff, 5760);
  for (const char* word : {"ragged", "tp8_src", "msa_src", "src+nonsense", "hdx"}) {
    row.rewrite = word;
    EXPECT_FALSE(FormOfRow(row).has_value()) << word;
  }
}

TEST(CompiledRows, CsvFieldsMayBeQuoted) {
  EXPECT_THAT(CompiledTableOf("w,x,y,z\na,\"b,c\",,d\r").rows[0].cells,
              testing::ElementsAre("a", "b,c", "", "d"));
}

}  // namespace
}  // namespace twinforge
