// Inputs and values reach every path: no expert, no head and no end of any axis of a parameter could change
// without the outputs changing.
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/rewriter.h"
#include "proof/algebra.h"
#include "proof/inputs.h"
#include "tests/importers/small_checkpoints.h"
#include "tests/proof/traces.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr uint64_t kSeed = 3;

// `param` with one slice half as large again.
WeightPtr SliceGrown(const Param& param, int64_t axis, int64_t at) {
  std::vector<WeightPtr> parts;
  const int64_t size = param.type.axes[axis].size;
  if (at > 0) parts.push_back(Slice(param.program, axis, 0, at));
  parts.push_back(Scale(Slice(param.program, axis, at, 1), 1.5));
  if (at + 1 < size) parts.push_back(Slice(param.program, axis, at + 1, size - at - 1));
  return Concat(axis, std::move(parts));
}

// What no input can reach: a constant added to every key moves all scores of a query alike where nothing
// turns, and a token or a place that is in no trial has a row that nobody reads.
bool NobodyCanSee(const Graph& graph, const Node& node, const Param& param, const std::string& axis) {
  if (axis == "vocab" && node.op == OpKind::kEmbedding) return true;
  if (axis == "positions") return true;
  return absl::EndsWith(param.role, ".k_bias") && node.attrs->attention().rope().style() == Rope::ABSENT;
}

// Both ends of every axis; every expert where it ends, for it is reached there or nowhere.
std::vector<int64_t> Places(const Param& param, const ParamAxis& axis) {
  if (axis.name != "expert" || !absl::EndsWith(param.role, ".down")) return {0, axis.size - 1};
  std::vector<int64_t> places;
  for (int64_t at = 0; at < axis.size; ++at) places.push_back(at);
  return places;
}

class Reach : public ::testing::TestWithParam<SmallConfig> {};

TEST_P(Reach, NoParameterIsOutOfReach) {
  const Model model = SmallFamilyModel(GetParam().name);
  const auto trials = TrialsFor(model.graph, model.graph, kSeed);
  ASSERT_TRUE(trials.ok()) << trials.status();
  const auto source = ValuesOf(model.graph, *trials);
  ASSERT_TRUE(source.ok()) << source.status();
  int64_t slices = 0;
  for (const Node& node : model.graph.nodes()) {
    for (const auto& [slot, role] : node.params) {
      const Param param = *model.graph.FindParam(role);
      for (size_t axis = 0; axis < param.type.axes.size(); ++axis) {
        if (NobodyCanSee(model.graph, node, param, param.type.axes[axis].name)) continue;
        for (int64_t at : Places(param, param.type.axes[axis])) {
          Graph changed = model.graph;
          Rewriter(changed, "1 grow").SetParam(role, param.type, SliceGrown(param, axis, at));
          const auto twin = ValuesOf(changed, *trials);
          ASSERT_TRUE(twin.ok()) << twin.status();
          EXPECT_TRUE(CompareOutputs(*trials, *source, *twin).differs)
              << role << ", " << param.type.axes[axis].name << " " << at;
          ++slices;
        }
      }
    }
  }
  EXPECT_GT(slices, 50);
}

INSTANTIATE_TEST_SUITE_P(Families, Reach, ::testing::ValuesIn(SmallConfigs()),
                         [](const auto& info) { return info.param.name; });

TEST(Trials, PassWindowsAndGoOnTokenByToken) {
  const Model model = SmallFamilyModel("mistral");
  const auto trials = TrialsFor(model.graph, model.graph, kSeed);
  ASSERT_TRUE(trials.ok());
  ASSERT_EQ(trials->size(), 6u);
  EXPECT_GT((*trials)[0].inputs.at("tokens").shape()[1], 8) << "longer than the window of 8";
  EXPECT_FALSE((*trials)[0].continues);
  EXPECT_TRUE((*trials)[1].continues && (*trials)[2].continues);
}

TEST(Trials, DoNotGoOnWhereLaterTokensAreSeen) {
  const Model model = SmallFamilyModel("bert");
  const auto trials = TrialsFor(model.graph, model.graph, kSeed);
  ASSERT_TRUE(trials.ok());
  EXPECT_EQ(trials->size(), 2u);
  EXPECT_EQ(trials->front().inputs.count("token_types"), 1u);
}

}  // namespace
}  // namespace twinforge
