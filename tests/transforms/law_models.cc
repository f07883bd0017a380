#include "tests/transforms/law_models.h"

#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "ir/text.h"
#include "transforms/transform.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

Graph Lowered(Graph graph, const std::string& ops) {
  TransformStep step;
  TWIN_CHECK(
      google::protobuf::TextFormat::ParseFromString(absl::StrCat("lower_composites {", ops, "}"), &step),
      ops);
  const auto transform = MakeTransform(step, {});
  TWIN_CHECK(transform.ok(), transform.status().message());
  const auto report = Apply(**transform, "0 lower", graph, nullptr, nullptr);
  TWIN_CHECK(report.ok(), report.status().message());
  return graph;
}

// Tokens look a row up in a table that the graph joins from two, pads, cuts and scales; the rest goes through
// a kernel that it turns over.
constexpr absl::string_view kWeightOps = R"(graph weight_ops(tokens: i32[batch, seq]) -> (out: y) {
  a = param() @a
  b = param() @b
  table = concat(a, b) {}
  half = constant() {type: "DTYPE[vocab=23, d_model=8]" values: 0.40625}
  scaled = multiply(table, half)
  rows = gather(scaled, tokens) {}
  joined = param() @joined
  up = slice(joined) {axis: "d_model" size: 5}
  down = slice(joined) {axis: "d_model" start: 5 size: 3}
  upwards = pad(up) {high: 3}
  kernel = reshape(upwards) {type: "DTYPE[d_model=8, heads=2, head_dim=3]"}
  z = dot(rows, kernel) {lhs_contract: 2 rhs_contract: 0}
  turned = transpose(down) {permutation: 1 permutation: 0}
  back = reshape(turned) {type: "DTYPE[heads=2, head_dim=3, wide=3]"}
  h = dot(z, back) {lhs_contract: 2 lhs_contract: 3 rhs_contract: 0 rhs_contract: 1}
  f = param() @f
  g = transpose(f) {permutation: 1 permutation: 0}
  y = dot(h, g) {lhs_contract: 2 rhs_contract: 0}
}
params {
  @a: DTYPE[vocab=20, d_model=8] = source("a": DTYPE[20, 8])
  @b: DTYPE[vocab=3, d_model=8] = source("b": DTYPE[3, 8])
  @f: DTYPE[d_model=7 -> wide=3] out_in = transpose(source("f": DTYPE[3, 7]), [1, 0])
  @joined: DTYPE[d_model=8, d_ff=6] = source("joined": DTYPE[8, 6])
}
)";

// A parameter that is converted, and one that something else reads as well.
constexpr absl::string_view kConverts = R"(graph converts(tokens: i32[batch, seq]) -> (out: y) {
  table = param() @table
  narrow = convert(table) {dtype: "bf16"}
  rows = gather(narrow, tokens) {}
  k = param() @k
  turned = transpose(k) {permutation: 1 permutation: 0}
  h = dot(rows, turned) {lhs_contract: 2 rhs_contract: 0}
  y = dot(h, k) {lhs_contract: 2 rhs_contract: 0}
}
params {
  @k: bf16[out=6, d_model=8] = source("k": bf16[6, 8])
  @table: f32[vocab=23, d_model=8] = source("table": f32[23, 8])
}
)";

LawModel FromText(const std::string& name, absl::string_view text, absl::string_view dtype) {
  absl::StatusOr<Graph> graph = ParseGraph(absl::StrReplaceAll(text, {{"DTYPE", dtype}}));
  TWIN_CHECK(graph.ok(), graph.status().message());
  return {name, *std::move(graph), std::nullopt};
}

}  // namespace

std::vector<LawModel> LawModels(const SmallSizes& sizes) {
  std::vector<LawModel> all;
  const std::vector<SmallModel> models = SmallModels(sizes);
  for (const SmallModel& model : models) all.push_back({model.name, model.graph, std::nullopt});
  if (sizes.heads != 5) return all;
  for (const SmallModel& model : models)
    all.push_back({absl::StrCat(model.name, " lowered"), Lowered(model.graph, ""), model.graph});
  for (const SmallModel& model : models) {
    const char* ops = "op: 'embedding' op: 'rms_norm' op: 'attention' op: 'moe' op: 'mlp'";
    all.push_back({absl::StrCat(model.name, " lowered in part"), Lowered(model.graph, ops), model.graph});
  }
  all.push_back(FromText("weight ops", kWeightOps, sizes.wide ? "f64" : "f32"));
  all.push_back(FromText("weight ops in bf16", kWeightOps, sizes.wide ? "f64" : "bf16"));
  if (!sizes.wide) all.push_back(FromText("converts", kConverts, ""));
  return all;
}

bool HoldsPrimitives(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const bool plain = node.op == OpKind::kInput || node.op == OpKind::kAdd || node.op == OpKind::kSlice;
    if (Info(node.op).composite == nullptr && !plain) return true;
  }
  return false;
}

}  // namespace twinforge
