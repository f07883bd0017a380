// Whole graphs before and after, as text: tests/transforms/*.txt, one file per transform.
//
//   laws: pad_vocab { multiple: 8 }                   first in the file: the steps that the laws try
//   (law_steps.h)
//   ---
//   case: pads the vocabulary and hides it again      a name, unique in the file
//   recipe: step { pad_vocab { multiple: 8 } }        steps, applied in order as "1 pad_vocab", ...
//   before:                                           a graph, in canonical text
//   before_of: another case                           or: the graph of that case
//   same_as: another case                             or: its graph, and the same result apart from
//   provenance after:                                            the graph that results; absent: unchanged
//   fidelity: MOVED                                   the weakest claim of the sites rewritten
//   refuses: path: reason                             every refusal, in order
//   native: path                                      every place with nothing to do
//   error: pad_vocab.multiple: is missing             the step can't be made
//
// Cases are separated by ---. Run with --update to rewrite what is expected, and review the difference.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <regex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "ir/text.h"
#include "tests/transforms/law_steps.h"
#include "transforms/transform.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

bool update = false;

struct Case {
  std::string name, recipe, before, before_of, same_as, after, fidelity, error;
  std::vector<std::string> refuses, native;
};

constexpr absl::string_view kBlocks[] = {"before", "after"};

std::string* Field(Case& c, absl::string_view key) {
  if (key == "case") return &c.name;
  if (key == "recipe") return &c.recipe;
  if (key == "before") return &c.before;
  if (key == "before_of") return &c.before_of;
  if (key == "same_as") return &c.same_as;
  if (key == "after") return &c.after;
  if (key == "fidelity") return &c.fidelity;
  if (key == "error") return &c.error;
  return nullptr;
}

Case ParseCase(absl::string_view text, absl::string_view file) {
  Case c;
  std::string* block = nullptr;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (block != nullptr && absl::StartsWith(line, "  ")) {
      absl::StrAppend(block, line.substr(2), "\n");
      continue;
    }
    block = nullptr;
    if (line.empty()) continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view rest = absl::StripAsciiWhitespace(parts.second);
    if (parts.first == "refuses") {
      c.refuses.emplace_back(rest);
    } else if (parts.first == "native") {
      c.native.emplace_back(rest);
    } else {
      std::string* field = Field(c, parts.first);
      TWIN_CHECK(field != nullptr, absl::StrCat(file, ": no such field: ", line));
      *field = std::string(rest);
      for (absl::string_view name : kBlocks) {
        if (name == parts.first) block = field;
      }
    }
  }
  return c;
}

std::string Indented(absl::string_view text) {
  std::string out;
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n'))
    absl::StrAppend(&out, "  ", line, "\n");
  return out;
}

std::string Render(const Case& c) {
  std::string out = absl::StrCat("case: ", c.name, "\n");
  if (!c.same_as.empty()) absl::StrAppend(&out, "same_as: ", c.same_as, "\n");
  absl::StrAppend(&out, "recipe: ", c.recipe, "\n");
  if (!c.before_of.empty()) absl::StrAppend(&out, "before_of: ", c.before_of, "\n");
  if (!c.before.empty()) absl::StrAppend(&out, "before:\n", Indented(c.before));
  if (!c.after.empty()) absl::StrAppend(&out, "after:\n", Indented(c.after));
  if (!c.fidelity.empty()) absl::StrAppend(&out, "fidelity: ", c.fidelity, "\n");
  for (const std::string& line : c.refuses) absl::StrAppend(&out, "refuses: ", line, "\n");
  for (const std::string& line : c.native) absl::StrAppend(&out, "native: ", line, "\n");
  if (!c.error.empty()) absl::StrAppend(&out, "error: ", c.error, "\n");
  return out;
}

// The bodies of "step { ... } step { ... }".
std::vector<std::string> Steps(absl::string_view recipe) {
  std::vector<std::string> steps;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < recipe.size(); ++i) {
    if (recipe[i] == '{' && depth++ == 0) begin = i + 1;
    if (recipe[i] == '}' && --depth == 0) steps.emplace_back(recipe.substr(begin, i - begin));
  }
  return steps;
}

// An adapter for tests: rank 2, on q and v, and on a parameter that is not there.
Adapter SmallAdapter() {
  const WeightPtr a = Source("adapter/q.a", DType::kF32, {2, 4});
  const WeightPtr b = Source("adapter/q.b", DType::kF32, {6, 2});
  return {{"attn.q", {a, b, 0.5}}, {"attn.v", {a, b, 0.5}}, {"layers.9.attn.q", {a, b, 0.5}}};
}

// Fills the expectations of `c` with what happens.
void Run(const std::string& before, Case& c) {
  absl::StatusOr<Graph> graph = ParseGraph(before);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_EQ(Text(*graph), before) << "the graph is not in canonical text";
  TransformContext context;
  context.adapters["law"] = SmallAdapter();
  Fidelity fidelity = Fidelity::kMoved;
  int number = 0;
  for (const std::string& body : Steps(c.recipe)) {
    TransformStep step;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(body, &step)) << body;
    absl::StatusOr<std::unique_ptr<Transform>> transform = MakeTransform(step, context);
    if (!transform.ok()) {
      const auto diagnostic = DiagnosticOf(transform.status());
      ASSERT_TRUE(diagnostic) << transform.status();
      c.error = absl::StrCat(diagnostic->place, ": ", diagnostic->message);
      return;
    }
    const std::string name = absl::StrCat(++number, " ", (*transform)->name());
    absl::StatusOr<StepReport> report = Apply(**transform, name, *graph, nullptr, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    if (!report->sites.empty()) fidelity = std::min(fidelity, report->fidelity);
    for (const Refusal& refusal : report->refused)
      c.refuses.push_back(absl::StrCat(refusal.path, ": ", refusal.reason));
    c.native.insert(c.native.end(), report->native.begin(), report->native.end());
  }
  const std::string after = Text(*graph);
  if (after == before) return;
  c.after = after;
  c.fidelity = std::string(FidelityName(fidelity));
}

std::string WithoutProvenance(const std::string& text) {
  return std::regex_replace(text, std::regex(" by \"[^\"]*\""), "");
}

const Case& Find(const std::vector<Case>& cases, const std::string& name) {
  for (const Case& c : cases) {
    if (c.name == name) return c;
  }
  TWIN_CHECK(false, absl::StrCat("no case is called ", name));
}

std::string BeforeOf(const std::vector<Case>& cases, const Case& c) {
  if (!c.same_as.empty()) return BeforeOf(cases, Find(cases, c.same_as));
  if (!c.before_of.empty()) return BeforeOf(cases, Find(cases, c.before_of));
  return c.before;
}

void CheckFile(const std::filesystem::path& path) {
  std::stringstream buffer;
  buffer << std::ifstream(path).rdbuf();
  const std::string text = buffer.str();
  std::vector<Case> cases;
  // The steps that the laws try come first, and stay as they are.
  const size_t end = text.find("---\n") + 4;
  ASSERT_TRUE(absl::StartsWith(text, kLawMark)) << path << " opens with no steps for the laws";
  for (absl::string_view part : absl::StrSplit(absl::string_view(text).substr(end), "\n---\n")) {
    cases.push_back(ParseCase(part, path.filename().string()));
    if (!update || cases.back().before.empty()) continue;
    absl::StatusOr<Graph> graph = ParseGraph(cases.back().before);
    ASSERT_TRUE(graph.ok()) << cases.back().name << ": " << graph.status().message();
    cases.back().before = Text(*graph);
  }
  std::vector<std::string> rendered;
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(path.filename().string(), ": ", c.name));
    Case got;
    got.name = c.name;
    got.recipe = c.recipe;
    got.before = c.before;
    got.before_of = c.before_of;
    got.same_as = c.same_as;
    Run(BeforeOf(cases, c), got);
    if (::testing::Test::HasFatalFailure()) return;
    if (!c.same_as.empty()) {
      EXPECT_EQ(WithoutProvenance(got.after), WithoutProvenance(Find(cases, c.same_as).after));
      got.after.clear();
      got.fidelity.clear();
    }
    rendered.push_back(Render(got));
    if (!update) {
      EXPECT_EQ(Render(got), Render(c));
    }
  }
  if (update) std::ofstream(path) << text.substr(0, end) << absl::StrJoin(rendered, "---\n");
}

std::filesystem::path Folder() { return std::filesystem::path(TWINFORGE_SOURCE_DIR) / "tests/transforms"; }

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, FileHolds) { CheckFile(Folder() / (GetParam() + ".txt")); }

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const TransformInfo& info : AllTransforms()) names.emplace_back(info.name);
  return names;
}

// A file per transform: a transform without one fails here.
INSTANTIATE_TEST_SUITE_P(All, Golden, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

TEST(Registry, NamesAreTheStepsOfTheProto) {
  std::vector<std::string> fields;
  const auto* set = TransformStep::descriptor()->FindOneofByName("transform");
  for (int i = 0; i < set->field_count(); ++i) fields.push_back(set->field(i)->name());
  EXPECT_THAT(Names(), ::testing::UnorderedElementsAreArray(fields));
}

TEST(Registry, RefusesAnEmptyStep) {
  const auto made = MakeTransform(TransformStep(), {});
  ASSERT_TRUE(DiagnosticOf(made.status()));
  EXPECT_EQ(DiagnosticOf(made.status())->code, 1504);
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
