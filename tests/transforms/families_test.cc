// Every transform on every family, read back through the family's own file.
//
// A twin that is written in the source's format is a config and tensors of certain shapes. A stranger has
// nothing else. So the config alone must rebuild the graph that was written: the same attributes, the same
// sizes, tensors of the same names and shapes. What can't be said so must be refused. No bytes are needed.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "importers/importer.h"
#include "ir/layout.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/importers/small_checkpoints.h"
#include "tests/transforms/law_steps.h"
#include "transforms/transform.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

std::unique_ptr<Transform> Make(const std::string& text) {
  TransformStep step;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &step)) << text;
  TransformContext context;
  context.adapters["law"] = {};  // none of its places is in these models
  absl::StatusOr<std::unique_ptr<Transform>> made = MakeTransform(step, context);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

void ForEach(const std::function<void(const Model&, const Transform&)>& law) {
  for (const SmallConfig& config : SmallConfigs()) {
    absl::StatusOr<Model> model = ModelFromConfigText(config.json, config.name);
    ASSERT_TRUE(model.ok()) << config.name << ": " << model.status();
    for (const std::string& step : LawSteps()) {
      SCOPED_TRACE(absl::StrCat(config.name, ", ", step));
      law(*model, *Make(step));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

StepReport MustApply(const Transform& transform, Graph& graph) {
  absl::StatusOr<StepReport> report = Apply(transform, "1 law", graph, nullptr, nullptr);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : StepReport();
}

TEST(Families, NoSitesRemainAndTextReadsBack) {
  ForEach([](const Model& model, const Transform& transform) {
    Graph graph = model.graph;
    MustApply(transform, graph);
    const std::string once = Text(graph);
    EXPECT_THAT(MustApply(transform, graph).sites, ::testing::IsEmpty());
    EXPECT_EQ(Text(graph), once);
    const absl::StatusOr<Graph> parsed = ParseGraph(once);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(Text(*parsed), once);
  });
}

// Attributes as a plain runtime would have them: it knows no logical sizes.
std::string PlainAttrs(const Graph& graph, const Node& node) {
  OpAttrs attrs = *node.attrs;
  if (attrs.has_attention()) {
    AttentionAttrs& attention = *attrs.mutable_attention();
    const ParamAxis& head_dim = graph.param(node, "q").type.Get("head_dim");
    if (node.Has("q_norm") && attention.qk_norm_dim() == 0) attention.set_qk_norm_dim(head_dim.logical);
  }
  if (attrs.has_norm() && attrs.norm().norm_dim() == 0) {
    attrs.mutable_norm()->set_norm_dim(graph.param(node, "scale").type.axes[0].logical);
  }
  return attrs.ShortDebugString();
}

// What a stranger sees of a parameter: no padding, no devices. Some families fix the type of a few tensors,
// which a config does not say.
std::string PlainType(ParamType type) {
  type.dtype = DType::kF32;
  for (ParamAxis& axis : type.axes) {
    axis.logical = axis.size;
    axis.shards = 1;
  }
  return Text(type);
}

void ExpectSameModel(const Graph& written, const Graph& read) {
  ASSERT_EQ(written.nodes().size(), read.nodes().size());
  for (const Node& node : written.nodes()) {
    const Node& other = read.node(node.id);
    ASSERT_EQ(node.path, other.path);
    EXPECT_EQ(node.op, other.op) << node.path;
    EXPECT_EQ(PlainAttrs(written, node), PlainAttrs(read, other)) << node.path;
    ASSERT_EQ(node.params, other.params) << node.path;
    for (const auto& [slot, role] : node.params) {
      EXPECT_EQ(PlainType(written.FindParam(role)->type), PlainType(read.FindParam(role)->type)) << role;
    }
  }
}

void ExpectSameFiles(const std::vector<NamedProgram>& written, const Layout& layout, const Graph& read) {
  std::map<std::string, ParamType> types;
  for (const auto& [role, param] : read.params()) types[role] = param.type;
  std::map<std::string, const LayoutTensor*> tensors;
  for (const LayoutTensor& tensor : layout.tensors) {
    for (int64_t i = 0; i < tensor.count(); ++i) tensors[tensor.NameAt(i)] = &tensor;
  }
  for (const NamedProgram& file : written) {
    ASSERT_TRUE(tensors.count(file.name)) << file.name;
    const absl::StatusOr<Shape> shape = StoredShape(*tensors[file.name], types);
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_EQ(file.program->shape(), *shape) << file.name;
  }
}

TEST(Families, ConfigAloneRebuildsWhatWasWrittenOrItWasRefused) {
  int said = 0, refused = 0;
  ForEach([&](const Model& model, const Transform& transform) {
    Graph graph = model.graph;
    if (MustApply(transform, graph).sites.empty()) return;
    for (size_t layout = 0; layout < model.layouts.size(); ++layout) {
      const absl::StatusOr<std::vector<NamedProgram>> files = FilesFromGraph(model.layouts[layout], graph);
      const absl::StatusOr<JsonValue> config = ConfigFromGraph(model.layouts[layout], graph, model.config);
      if (!files.ok() || !config.ok()) {
        const auto diagnostic = DiagnosticOf(files.ok() ? config.status() : files.status());
        ASSERT_TRUE(diagnostic);
        EXPECT_THAT(diagnostic->code, ::testing::AnyOf(1601, 1602));
        EXPECT_NE(diagnostic->message, "");
        ++refused;
        continue;
      }
      ++said;
      const absl::StatusOr<Model> read = ModelFromConfigText(config->Text(2), "written");
      if (!read.ok()) {
        // A carrier is another model_type, which need not be a family that is read.
        EXPECT_NE(config->Text(0).find("granite"), std::string::npos) << read.status();
        continue;
      }
      ExpectSameModel(graph, read->graph);
      ASSERT_LT(layout, read->layouts.size());
      ExpectSameFiles(*files, read->layouts[layout], read->graph);
    }
  });
  EXPECT_GT(said, 50);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace twinforge
