// What a program holds: bundles padded as one, caches of a window as long as all others.
#include "cost/program_memory.h"

#include "gtest/gtest.h"
#include "ir/rewriter.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

ProgramMemory MemoryOf(const Graph& graph, int64_t places) {
  const absl::StatusOr<StepCount> count =
      CountStep(graph, {.phase = Phase::kDecode, .batch = 2, .context = places - 1});
  EXPECT_TRUE(count.ok()) << count.status();
  return MemoryOfProgram(graph, *count, places);
}

Exact PaddedByParameter(const Graph& graph, int64_t places) {
  const StepCount count = *CountStep(graph, {.phase = Phase::kDecode, .batch = 2, .context = places - 1});
  Exact bytes;
  for (const NodeUse& use : count.nodes) {
    const NodeCount& kind = count.kinds[static_cast<size_t>(use.kind)];
    for (size_t i = 0; i < kind.stored.size(); ++i) {
      if ((use.keeps >> i & 1) == 0) continue;
      for (const StoredArray& array : kind.stored[i]) bytes += PaddedBytes(array.dtype, array.shape);
    }
  }
  return bytes;
}

TEST(ProgramMemory, IsThatOfParametersWhereNothingIsJoined) {
  const Graph graph = MakeModel({.layers = 2});
  const ProgramMemory memory = MemoryOf(graph, 64);
  EXPECT_EQ(memory.weights.value(), PaddedByParameter(graph, 64).value());
  // Two layers, keys and values of two sequences, two kv heads of 16: [2, 2, 64, 16], the places along the
  // lanes.
  EXPECT_EQ(memory.cache.value(), 4 * PaddedBytes(DType::kBF16, {2, 2, 64, 16}).value());
}

// Three arrays of 20 columns pad to more than one of 60.
TEST(ProgramMemory, PadsABundleAsOne) {
  const Graph apart = MakeModel({.d_model = 20, .heads = 1, .kv_heads = 1, .head_dim = 20, .d_ff = 36});
  Graph joined = apart;
  const Node& attention = *joined.FindNode("layers.0.attn");
  const auto role = [&](absl::string_view slot) { return std::string(attention.Role(slot)); };
  Rewriter(joined, "1 fuse_qkv")
      .AddBundle({.role = "layers.0.attn.qkv", .members = {role("q"), role("k"), role("v")}});
  const Exact one = PaddedBytes(DType::kBF16, {20, 20}), all = PaddedBytes(DType::kBF16, {20, 60});
  ASSERT_LT(all.value(), 3 * one.value());
  EXPECT_EQ(MemoryOf(apart, 64).weights.value() - MemoryOf(joined, 64).weights.value(),
            3 * one.value() - all.value());
}

// CountStep() keeps the 32 places that a window shows; the program's cache has all of them.
TEST(ProgramMemory, HoldsTheWholeCacheOfAWindow) {
  const Graph windowed = MakeModel({.layers = 2, .window = 32}), plain = MakeModel({.layers = 2});
  EXPECT_EQ(MemoryOf(windowed, 512).cache.value(), MemoryOf(plain, 512).cache.value());
}

}  // namespace
}  // namespace twinforge
