// What every registered transform promises, on small models of every kind at awkward sizes.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "eval/evaluate.h"
#include "ir/layout.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/support/naive_weights.h"
#include "tests/support/random_weights.h"
#include "tests/transforms/law_models.h"
#include "tests/transforms/law_steps.h"
#include "tests/transforms/naive_model.h"
#include "transforms/transform.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"
#include "weights/invert.h"
#include "weights/read.h"
#include "weights/simplify.h"

namespace twinforge {
namespace {

// An adapter for layer 0's o of the models whose heads are many enough.
Adapter LawAdapter(const Graph& graph) {
  const Param* o = graph.FindParam("layers.0.attn.o");
  if (o == nullptr) return {};
  const int64_t out = o->type.Get("d_model").size, in = o->program->element_count() / out;
  return {{"layers.0.attn.o",
           {Source("adapter/a", o->type.dtype, {3, in}), Source("adapter/b", o->type.dtype, {out, 3}), 0.5}}};
}

std::unique_ptr<Transform> Make(const std::string& text, const Graph& graph) {
  TransformStep step;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &step)) << text;
  TransformContext context;
  context.adapters["law"] = LawAdapter(graph);
  absl::StatusOr<std::unique_ptr<Transform>> made = MakeTransform(step, context);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Every stored tensor that a graph reads, as Source nodes.
void Collect(const WeightPtr& w, std::map<std::string, WeightPtr>& sources) {
  if (w->kind() == WeightKind::kSource) sources.emplace(w->source_name(), w);
  for (int64_t i = 0; w->kind() == WeightKind::kStack && i < w->shape()[0]; ++i) {
    Collect(StackMember(*w, i), sources);
  }
  for (const WeightPtr& child : w->children()) Collect(child, sources);
}
std::map<std::string, WeightPtr> SourcesOf(const Graph& graph) {
  std::map<std::string, WeightPtr> sources;
  for (const auto& [role, param] : graph.params()) Collect(param.program, sources);
  return sources;
}

// Values of moderate size with all bits of their significands in use.
NaiveTensors Values(const std::map<std::string, WeightPtr>& sources, uint64_t seed) {
  Random random(seed);
  std::uniform_real_distribution<double> uniform(-2, 2);
  NaiveTensors values;
  for (const auto& [name, source] : sources) {
    NaiveTensor tensor(source->dtype(), source->shape());
    for (int64_t i = 0; i < source->element_count(); ++i)
      FromDouble(source->dtype(), uniform(random), tensor.at(i));
    values.emplace(name, std::move(tensor));
  }
  return values;
}

// A weight's values stay at hand: nothing overflows, so a transform that asks is told.
absl::StatusOr<std::vector<double>> Observe(const WeightPtr&) { return std::vector<double>{2.0}; }

struct Subject {
  std::string model;
  std::string step;
  Graph graph;
};

std::vector<Subject> Subjects() {
  std::vector<SmallSizes> all = {
      {},
      {.layers = 1, .heads = 5, .kv_heads = 1, .head_dim = 8, .d_ff = 9, .vocab = 24},
      {.layers = 1, .heads = 4, .kv_heads = 4, .head_dim = 6, .d_ff = 16, .vocab = 32, .experts = 4}};
  std::vector<Subject> subjects;
  for (const SmallSizes& sizes : all) {
    for (const LawModel& model : LawModels(sizes)) {
      for (const std::string& step : LawSteps()) subjects.push_back({model.name, step, model.graph});
    }
  }
  return subjects;
}

void ForEach(const std::function<void(const Subject&, const Transform&)>& law) {
  for (const Subject& subject : Subjects()) {
    SCOPED_TRACE(absl::StrCat(subject.model, ", ", subject.step));
    law(subject, *Make(subject.step, subject.graph));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

StepReport MustApply(const Transform& transform, Graph& graph) {
  absl::StatusOr<StepReport> report = Apply(transform, "1 law", graph, nullptr, Observe);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : StepReport();
}

TEST(Laws, EveryTransformHasAStepHereThatFitsSomewhere) {
  std::set<std::string> fitted;
  ForEach([&](const Subject& subject, const Transform& transform) {
    if (!transform.FindSites(subject.graph).fit.empty()) fitted.insert(std::string(transform.name()));
  });
  std::set<std::string> all;
  for (const TransformInfo& info : AllTransforms()) all.insert(std::string(info.name));
  EXPECT_EQ(fitted, all);
}

TEST(Laws, NoSitesRemain) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph graph = subject.graph;
    const StepReport first = MustApply(transform, graph);
    const std::string once = Text(graph);
    const StepReport second = MustApply(transform, graph);
    EXPECT_THAT(second.sites, ::testing::IsEmpty());
    EXPECT_EQ(Text(graph), once);
    // What was rewritten is native now, and what was refused still is.
    EXPECT_EQ(second.native.empty(), first.native.empty() && first.sites.empty());
    EXPECT_EQ(second.refused.size(), first.refused.size());
  });
}

TEST(Laws, NothingHappensWithoutSites) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph graph = subject.graph;
    const StepReport report = MustApply(transform, graph);
    if (!report.sites.empty()) {
      EXPECT_NE(Text(graph), Text(subject.graph));
      return;
    }
    EXPECT_EQ(Text(graph), Text(subject.graph));
    EXPECT_EQ(report.elements_added, 0);
  });
}

TEST(Laws, SameInputSameOutput) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph a = subject.graph, b = subject.graph;
    MustApply(transform, a);
    MustApply(*Make(subject.step, subject.graph), b);
    EXPECT_EQ(Text(a), Text(b));
  });
}

TEST(Laws, PrintedAndParsedBack) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph graph = subject.graph;
    MustApply(transform, graph);
    const std::string text = Text(graph);
    const absl::StatusOr<Graph> parsed = ParseGraph(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
    EXPECT_EQ(Text(*parsed), text);
    EXPECT_TRUE(Verify(*parsed).ok());
    EXPECT_EQ(StoredElements(*parsed), StoredElements(graph));
  });
}

TEST(Laws, LogicalElementsNeverChange) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph graph = subject.graph;
    const StepReport report = MustApply(transform, graph);
    EXPECT_EQ(StoredElements(graph), StoredElements(subject.graph) + report.elements_added);
    // Norms whose scales were folded are one constant, which is counted once.
    if (transform.name() == "fold_norm_scale") return;
    // Places that the graph padded become the parameter's own.
    if (transform.name() == "absorb_weight_ops") return;
    EXPECT_EQ(LogicalElements(graph), LogicalElements(subject.graph));
  });
}

TEST(Laws, OuterSignatureNeverChangesButInDType) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph graph = subject.graph;
    MustApply(transform, graph);
    const auto &outputs = graph.outputs(), &before = subject.graph.outputs();
    ASSERT_EQ(outputs.size(), before.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i].first, before[i].first);
      EXPECT_EQ(graph.node(outputs[i].second).type.axes, subject.graph.node(before[i].second).type.axes);
    }
    ASSERT_EQ(graph.inputs().size(), subject.graph.inputs().size());
    for (NodeId input : graph.inputs()) {
      EXPECT_EQ(graph.node(input).path, subject.graph.node(input).path);
      EXPECT_EQ(graph.node(input).type.axes, subject.graph.node(input).type.axes);
    }
  });
}

// The programs of the twin's tensors, turned back, give every source: the same bits where the claim is MOVED,
// within a rounding or two where weights are scaled by constants.
TEST(Laws, HomeAgain) {
  ForEach([](const Subject& subject, const Transform& transform) {
    const absl::string_view name = transform.name();
    if (name == "fold_norm_scale" || name == "merge_lora" || name == "keep_n_of_m") return;  // no way back
    Graph graph = subject.graph;
    const StepReport report = MustApply(transform, graph);
    std::vector<NamedProgram> twin;
    for (const TwinTensor& tensor : TwinTensors(graph)) twin.push_back({tensor.name, tensor.program});
    const auto sources = SourcesOf(subject.graph);
    const NaiveTensors values = Values(sources, 7);
    NaiveTensors twin_values;
    for (const NamedProgram& tensor : twin)
      twin_values.emplace(tensor.name, NaiveValue(tensor.program, values));
    std::vector<WeightPtr> list;
    for (const auto& [source_name, source] : sources) list.push_back(source);
    for (const LedgerRow& row : Invert(twin, list)) {
      ASSERT_NE(row.inverse, nullptr) << row.source << ": " << FateName(row.fate) << ", " << row.reason;
      const NaiveTensor& want = values.at(row.source);
      const NaiveTensor got = NaiveValue(row.inverse, twin_values);
      ASSERT_EQ(got.shape, want.shape);
      if (report.fidelity == Fidelity::kMoved || name == "group_experts") {
        EXPECT_EQ(row.fate, Fate::kMoved) << row.source;
        EXPECT_EQ(BitDifference(want, got), "") << row.source;
        continue;
      }
      // Two roundings, each by half a unit of the narrower of the types on the way.
      const double unit = name == "cast_weights" || report.bound > 0 || want.dtype == DType::kBF16
                              ? std::ldexp(1, -8)
                              : std::ldexp(1, -23);
      for (int64_t i = 0; i < ElementCount(want.shape); ++i) {
        const double x = ToDouble(want.dtype, want.at(i)), y = ToDouble(got.dtype, got.at(i));
        // An offset norm adds 1 on the way, so its unit is that of 1 + w.
        ASSERT_NEAR(x, y, 2 * unit * (std::abs(x) + (absl::StrContains(row.source, "norm") ? 2 : 0)))
            << row.source;
      }
    }
  });
}

double LargestDifference(const std::vector<std::vector<double>>& a,
                         const std::vector<std::vector<double>>& b) {
  double largest = 0, difference = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    EXPECT_EQ(a[t].size(), b[t].size());
    for (size_t i = 0; i < std::min(a[t].size(), b[t].size()); ++i) {
      EXPECT_TRUE(std::isfinite(a[t][i]) && std::isfinite(b[t][i]));
      largest = std::max(largest, std::abs(a[t][i]));
      difference = std::max(difference, std::abs(a[t][i] - b[t][i]));
    }
  }
  return difference / largest;
}

// The same by the product's own evaluator, through decompositions.
std::vector<std::vector<double>> Evaluated(const Graph& graph, const NaiveTensors& values,
                                           const std::vector<int64_t>& tokens) {
  const MemoryReader reader(values);
  const Tensor ids(DType::kI32, {1, static_cast<int64_t>(tokens.size())}, {tokens.begin(), tokens.end()});
  const auto out = Evaluate(graph, StoredParams(reader), {{"tokens", ids}});
  EXPECT_TRUE(out.ok()) << out.status();
  std::vector<std::vector<double>> rows;
  if (!out.ok()) return rows;
  const Tensor& y = out->at("out");
  const int64_t width = y.shape().back();
  for (int64_t t = 0; t * width < y.count(); ++t) {
    rows.emplace_back(y.data() + t * width, y.data() + (t + 1) * width);
  }
  return rows;
}

// By the loops where they know every op; primitives are the evaluator's alone.
std::vector<std::vector<double>> Output(const Graph& graph, const NaiveTensors& values,
                                        const std::vector<int64_t>& tokens) {
  return HoldsPrimitives(graph) ? Evaluated(graph, values, tokens) : NaiveOutput(graph, values, tokens);
}

// Evaluated before and after, in f64 with f64 weights, by loops that share nothing with the transforms. What
// a step claims to be equal in real arithmetic differs by the order of sums alone. The product's evaluator
// must give what those loops give, on every graph that a transform leaves.
TEST(Laws, SameFunction) {
  const std::vector<int64_t> tokens = {3, 17, 0, 22, 8};
  for (const SmallSizes& sizes : std::vector<SmallSizes>{
           {.wide = true},
           {.layers = 1, .d_model = 9, .heads = 5, .kv_heads = 1, .head_dim = 8, .d_ff = 9, .wide = true},
           {.layers = 1, .heads = 4, .kv_heads = 4, .head_dim = 6, .d_ff = 16, .experts = 4, .wide = true}}) {
    for (const LawModel& model : LawModels(sizes)) {
      const NaiveTensors values = Values(SourcesOf(model.graph), 3);
      const auto want = Output(model.naive ? *model.naive : model.graph, values, tokens);
      for (const std::string& step : LawSteps()) {
        SCOPED_TRACE(absl::StrCat(model.name, ", ", step));
        const auto transform = Make(step, model.graph);
        if (transform->name() == "merge_lora" || transform->name() == "cast_weights")
          continue;  // another function
        Graph graph = model.graph;
        const StepReport report = MustApply(*transform, graph);
        if (report.sites.empty()) continue;
        const auto got = Output(graph, values, tokens);
        EXPECT_LE(LargestDifference(got, Evaluated(graph, values, tokens)), 1e-12);
        const double difference = LargestDifference(want, got);
        if (report.fidelity == Fidelity::kRetrain) {
          EXPECT_GT(difference, 1e-3) << "the judge sees no difference where there must be one";
        } else {
          EXPECT_LE(difference, 1e-12);
        }
      }
    }
  }
}

// The same for the steps of a whole recipe, one after the other, for two and three shards.
TEST(Laws, SameFunctionAfterAWholeRecipe) {
  const std::vector<int64_t> tokens = {1, 2, 22, 5};
  for (const char* shards : {"2", "3"}) {
    const std::string n(shards);
    const std::vector<std::string> steps = {"reorder_rope { style: TO_HALVES }",
                                            "pad_heads { multiple: " + n + " }",
                                            "replicate_kv_heads { to_multiple: " + n + " }",
                                            "pad_head_dim { form: PORTABLE multiple: 16 }",
                                            "pad_ffn { multiple: 8 }",
                                            "pad_ffn { multiple: 4 shards: " + n + " }",
                                            "pad_vocab { multiple: 64 mask: REFERENCE }",
                                            "fold_norm_scale { }",
                                            "stack_experts { }",
                                            "group_experts { size: 2 }",
                                            "fuse_qkv { shards: " + n + " }",
                                            "fuse_gate_up { }",
                                            "shard_by_role { shards: " + n + " }",
                                            "absorb_mla { }",
                                            "stack_layers { }",
                                            "orient_weights { in_out: 'o|down|lm_head' }",
                                            "pad_head_dim { form: NATIVE multiple: 24 }"};
    for (const SmallModel& model : SmallModels({.layers = 2, .wide = true})) {
      SCOPED_TRACE(absl::StrCat(model.name, ", shards ", n));
      const NaiveTensors values = Values(SourcesOf(model.graph), 5);
      Graph graph = model.graph;
      for (const std::string& step : steps) MustApply(*Make(step.c_str(), graph), graph);
      EXPECT_LE(
          LargestDifference(NaiveOutput(model.graph, values, tokens), NaiveOutput(graph, values, tokens)),
          1e-12);
    }
  }
}

// The same values as f64.
NaiveTensors Widened(const NaiveTensors& values) {
  NaiveTensors wide;
  for (const auto& [name, tensor] : values) wide.emplace(name, NaiveCast(tensor, DType::kF64));
  return wide;
}

// What a step computes and stores is as far from what it would be in f64 as it says, and no further: the bits
// of MOVED, half a unit of f32 where nothing narrower is claimed, else the stated bound.
TEST(Laws, RoundingStaysWithinTheBound) {
  std::set<std::string> bounded;
  for (const SmallSizes& sizes :
       std::vector<SmallSizes>{{},
                               {.layers = 1, .heads = 5, .kv_heads = 1, .head_dim = 8},
                               {.layers = 1, .heads = 4, .kv_heads = 4, .head_dim = 6, .experts = 4}}) {
    SmallSizes wide_sizes = sizes;
    wide_sizes.wide = true;
    const std::vector<LawModel> narrow_models = LawModels(sizes), wide_models = LawModels(wide_sizes);
    for (size_t m = 0; m < wide_models.size(); ++m) {
      for (const std::string& step : LawSteps()) {
        SCOPED_TRACE(absl::StrCat(narrow_models[m].name, ", ", step));
        Graph narrow = narrow_models[m].graph, wide = wide_models[m].graph;
        const auto transform = Make(step, narrow);
        const StepReport report = MustApply(*transform, narrow);
        EXPECT_EQ(report.bound > 0, report.fidelity == Fidelity::kBounded);
        if (report.bound > 0) bounded.insert(std::string(transform->name()));
        MustApply(*Make(step, wide), wide);
        const NaiveTensors values = Values(SourcesOf(narrow), 5);
        const NaiveTensors wide_values = Widened(values);
        const double most = report.bound > 0                             ? report.bound
                            : report.fidelity == Fidelity::kReassociated ? std::ldexp(1, -24)
                                                                         : 0;
        for (const auto& [role, param] : narrow.params()) {
          const NaiveTensor got = NaiveValue(param.program, values);
          const NaiveTensor want = NaiveValue(wide.FindParam(role)->program, wide_values);
          ASSERT_EQ(got.shape, want.shape) << role;
          for (int64_t i = 0; i < ElementCount(got.shape); ++i) {
            const double x = ToDouble(want.dtype, want.at(i)), y = ToDouble(got.dtype, got.at(i));
            if (x == y) continue;  // infinities too
            ASSERT_LE(std::abs(x - y), most * std::abs(x)) << role << " " << x << " " << y;
          }
        }
      }
    }
  }
  EXPECT_THAT(bounded, ::testing::IsSupersetOf({"pad_head_dim", "fold_norm_scale", "cast_weights"}));
}

TEST(Laws, EverySourceIsHeldOrAccountedFor) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph graph = subject.graph;
    MustApply(transform, graph);
    std::vector<NamedProgram> twin;
    for (const TwinTensor& tensor : TwinTensors(graph)) twin.push_back({tensor.name, tensor.program});
    std::vector<WeightPtr> list;
    for (const auto& [name, source] : SourcesOf(subject.graph)) list.push_back(source);
    for (const LedgerRow& row : Invert(twin, list)) {
      EXPECT_NE(row.fate, Fate::kUnused) << row.source;
      EXPECT_NE(row.fate, Fate::kPartial) << row.source << ": " << row.reason;
      EXPECT_FALSE(row.consumers.empty()) << row.source;
    }
  });
}

// What the twin's own layout writes, read back by role, is every parameter bit for bit.
TEST(Laws, RolesReadBackFromTheTwin) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph graph = subject.graph;
    if (MustApply(transform, graph).sites.empty()) return;
    const NaiveTensors values = Values(SourcesOf(graph), 13);
    NaiveTensors twin;
    for (const TwinTensor& tensor : TwinTensors(graph))
      twin.emplace(tensor.name, NaiveValue(tensor.program, values));
    const std::map<std::string, WeightPtr> roles = RolesFromTwin(graph);
    ASSERT_EQ(roles.size(), graph.params().size());
    for (const auto& [role, param] : graph.params()) {
      EXPECT_EQ(BitDifference(NaiveValue(param.program, values), NaiveValue(roles.at(role), twin)), "")
          << role;
    }
  });
}

TEST(Laws, ScratchIsAsPredicted) {
  ForEach([](const Subject& subject, const Transform& transform) {
    Graph graph = subject.graph;
    MustApply(transform, graph);
    const auto sources = SourcesOf(graph);
    const NaiveTensors values = Values(sources, 11);
    const MemoryReader reader(values);
    for (const auto& [role, param] : graph.params()) {
      const Box box = WholeBox(param.program->shape());
      NaiveTensor out(param.program->dtype(), param.program->shape());
      Scratch scratch;
      ASSERT_TRUE(Read(param.program, box, reader, out.data.data(), scratch).ok()) << role;
      EXPECT_EQ(scratch.high_water(), ScratchBytes(param.program, box)) << role;
      EXPECT_EQ(Difference(NaiveValue(param.program, values), out), "") << role;
    }
  });
}

}  // namespace
}  // namespace twinforge
