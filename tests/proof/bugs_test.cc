// The verifier's power: every seeded bug is caught, and named by step and place. The table in
// docs/verification.md is what this test sees; --update writes it anew.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/verify.h"
#include "proof/function.h"
#include "tests/proof/seeded_bugs.h"
#include "tests/proof/traces.h"

namespace twinforge {
namespace {

bool update = false;

constexpr uint64_t kSeed = 7;
constexpr char kBegin[] = "<!-- seeded bugs: written by proof_bugs_test --update -->\n";
constexpr char kEnd[] = "<!-- end of seeded bugs -->\n";

std::vector<SeededBug> AllBugs() {
  std::vector<SeededBug> bugs;
  for (const auto& some : {AttentionBugs(), FeedForwardBugs(), ModelBugs()})
    bugs.insert(bugs.end(), some.begin(), some.end());
  return bugs;
}

StepTrace TraceOf(const SeededBug& bug, bool struck) {
  const LoadedRecipe recipe = RecipeOf(bug.recipe);
  return TraceWith(recipe, {}, SmallFamilyModel(bug.model), [&](size_t step, Graph& graph) {
    if (!struck || step != bug.after) return;
    Rewriter rewriter(graph, recipe.steps[step - 1].name);
    bug.strike(rewriter);
    rewriter.InferTypes();
    const absl::Status verified = Verify(graph);
    EXPECT_TRUE(verified.ok()) << "a bug that the graph's own rules forbid is none: " << verified;
  });
}

std::string Row(const SeededBug& bug, const FunctionProof& proof) {
  return absl::StrCat("| ", bug.name, " | ", bug.model, " | ", proof.fault->step, " | ", proof.fault->role,
                      " |\n");
}

std::string Table() {
  std::string table = "| bug | in a small | found in step | at |\n| --- | --- | --- | --- |\n";
  for (const SeededBug& bug : AllBugs()) {
    SCOPED_TRACE(bug.name);
    const StepTrace trace = TraceOf(bug, true);
    const FunctionProof proof = CompareAlongTrace(trace, trace.graphs.back(), kSeed);
    EXPECT_EQ(proof.verdict, Verdict::kRefuted) << "not caught; largest difference " << proof.largest;
    if (!proof.fault) continue;
    EXPECT_EQ(proof.fault->step, trace.names[bug.after - 1]);
    EXPECT_TRUE(absl::StartsWith(proof.fault->node, bug.place)) << proof.fault->node << ", not " << bug.place;
    EXPECT_TRUE(absl::StrContains(proof.smallest_case, "source:\ngraph ")) << proof.smallest_case;
    absl::StrAppend(&table, Row(bug, proof));
  }
  return table;
}

TEST(SeededBugs, AreAllCaughtAndNamedAsPublished) {
  const std::string path = absl::StrCat(TWINFORGE_SOURCE_DIR, "/docs/verification.md");
  std::stringstream page;
  page << std::ifstream(path).rdbuf();
  const std::string text = page.str();
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::string table = Table();
  const std::string fresh = absl::StrCat(text.substr(0, begin), kBegin, table, text.substr(end));
  if (update) {
    std::ofstream(path) << fresh;
  } else {
    EXPECT_EQ(text, fresh) << "run proof_bugs_test --update and review the page";
  }
}

// Without the bug the same recipe on the same model is proven: what is caught is the bug.
TEST(SeededBugs, AreWhatIsCaught) {
  std::set<std::string> tried;
  for (const SeededBug& bug : AllBugs()) {
    if (!tried.insert(absl::StrCat(bug.model, bug.recipe)).second) continue;
    SCOPED_TRACE(absl::StrCat(bug.model, ", ", bug.recipe));
    const StepTrace trace = TraceOf(bug, false);
    const FunctionProof proof = CompareAlongTrace(trace, trace.graphs.back(), kSeed);
    EXPECT_EQ(proof.verdict, Verdict::kProven) << proof.reason;
  }
}

TEST(SeededBugs, AreManyAndDistinct) {
  std::set<std::string> names;
  for (const SeededBug& bug : AllBugs()) EXPECT_TRUE(names.insert(bug.name).second) << bug.name;
  EXPECT_GE(names.size(), 30u);
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--update") twinforge::update = true;
  }
  return RUN_ALL_TESTS();
}
