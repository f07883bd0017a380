// What each composite is written out as: ops/<name>.txt holds a graph and, after `---`, the decomposition of
// its last node.
//
// TWINFORGE_UPDATE=1 writes the second half anew, for review.
#include "ir/decompose.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/text.h"
#include "weights/build.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kDivider = "---\n";

std::vector<fs::path> Files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(TWINFORGE_SOURCE_DIR) / "tests" / "ir" / "ops")) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Without the programs, which are the first half's.
std::string Nodes(const Graph& graph) {
  const std::string text = Text(graph);
  return text.substr(0, text.find("params {"));
}

TEST(Decompositions, AreThoseOfTheFiles) {
  for (const fs::path& path : Files()) {
    SCOPED_TRACE(path.filename().string());
    const std::string text = ReadFile(path);
    const std::string given = text.substr(0, text.find(std::string(kDivider)));
    const absl::StatusOr<Graph> graph = ParseGraph(given);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const Node& node = graph->nodes().back();
    EXPECT_EQ(Info(node.op).name, path.stem().string());
    const bool with_state = !StateOf(*graph, node).empty();
    const absl::StatusOr<Graph> body = DecompositionOf(*graph, node, DecompositionDepth::kOnce, with_state);
    ASSERT_TRUE(body.ok()) << body.status();
    const std::string whole = absl::StrCat(given, kDivider, Nodes(*body));
    if (std::getenv("TWINFORGE_UPDATE") != nullptr) std::ofstream(path) << whole;
    EXPECT_EQ(ReadFile(path), whole);
  }
}

TEST(Decompositions, EachCompositeHasAFile) {
  std::set<std::string> files;
  for (const fs::path& path : Files()) files.insert(path.stem().string());
  std::set<std::string> composites;
  for (const OpInfo& info : AllOps()) {
    if (info.composite != nullptr) composites.insert(std::string(info.name));
  }
  EXPECT_EQ(files, composites);
}

// Into a graph that holds more than the one node: roles, programs and storage are carried over, and state is
// threaded.
TEST(Decompositions, AreEmittedBesideOtherNodes) {
  const absl::StatusOr<Graph> from = ParseGraph(R"(graph t(x: f32[batch, seq, d_model=4]) -> (y: a) {
  a = short_conv(x) b=@a.b c=@a.c x=@a.x taps=@a.taps o=@a.o {}
}
params {
  @a.b: f32[d_model=4 -> channels=2] in_out = source("b": f32[4, 2])
  @a.c: f32[d_model=4 -> channels=2] out_in = transpose(source("c": f32[2, 4]), [1, 0])
  @a.o: f32[channels=2 -> d_model=4] in_out = source("o": f32[2, 4])
  @a.taps: f32[tap=3, channels=2] = source("t": f32[3, 2])
  @a.x: f32[d_model=4 -> channels=2] in_out = source("x": f32[4, 2])
}
)");
  ASSERT_TRUE(from.ok()) << from.status();
  const Node& node = *from->FindNode("a");
  const std::vector<StateSlot> slots = StateOf(*from, node);
  ASSERT_EQ(slots.size(), 1);
  EXPECT_EQ(absl::StrCat(slots[0].name, " ", Text(slots[0].type)), "window f32[batch, window=2, channels=2]");
  Builder to("lowered");
  DecompositionInputs inputs;
  inputs.operands = {to.Input("x", from->node(from->inputs()[0]).type)};
  inputs.state = {to.Input("a.window", slots[0].type)};
  inputs.positions = to.Input("positions", *ParseType("i32[batch, seq]"));
  const auto done = EmitDecomposition(*from, node, inputs, DecompositionDepth::kPrimitives, to);
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_EQ(done->state.size(), 1);
  to.Output("y", done->result);
  to.Output("a.window", done->state[0]);
  const absl::StatusOr<Graph> lowered = to.Finish();
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->node(done->result).type, node.type);
  EXPECT_EQ(lowered->node(done->state[0]).type, slots[0].type);
  ASSERT_EQ(lowered->params().size(), from->params().size());
  for (const auto& [role, param] : from->params()) {
    EXPECT_EQ(lowered->FindParam(role)->program, param.program) << role;
    EXPECT_EQ(lowered->FindParam(role)->storage, param.storage) << role;
    EXPECT_EQ(lowered->FindNode(role)->op, OpKind::kParam) << role;
  }
}

}  // namespace
}  // namespace twinforge
