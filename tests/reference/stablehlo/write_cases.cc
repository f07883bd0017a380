// write_cases FOLDER: every case's modules, and in cases.json its inputs, weights and the evaluator's
// results.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "eval/evaluate.h"
#include "ir/text.h"
#include "reference/stablehlo/stablehlo.h"
#include "tests/reference/stablehlo/graph_cases.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kBatch = 2, kSeq = 6, kFirst = 3, kContext = 8;
const RandomTensors kValues(7);

template <typename T>
T Must(absl::StatusOr<T> value, const std::string& what) {
  if (value.ok()) return *std::move(value);
  std::cerr << what << ": " << value.status() << "\n";
  std::exit(1);
}

Tensor ValueOf(const WeightPtr& program) {
  Param param;
  param.program = program;
  return Must(StoredParams(kValues).Value(param), "a value");
}

// Values for an input: random, whole numbers 0 to 2.
Tensor InputOf(const Node& node) {
  Shape shape;
  for (const Axis& axis : node.type.axes)
    shape.push_back(*axis.size.Bind({{"batch", kBatch}, {"seq", kSeq}}));
  if (IsFloat(node.type.dtype)) return ValueOf(Source(node.path, node.type.dtype, shape));
  std::vector<double> values;
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    values.push_back(static_cast<double>(node.type.dtype == DType::kBool ? i % 2 : (i * 5 + 1) % 3));
  }
  return Tensor(node.type.dtype, shape, std::move(values));
}

Json JsonOf(const Tensor& tensor) {
  return {
      {"dtype", std::string(Name(tensor.dtype()))}, {"shape", tensor.shape()}, {"values", tensor.values()}};
}

Json ModuleJson(const Graph& graph, const StableHloOptions& options, const std::string& path) {
  const StableHloModule module = Must(WriteStableHlo(graph, options), path);
  std::ofstream(path + ".mlir") << module.text;
  Json json = {{"file", path + ".mlir"}, {"arguments", Json::array()}, {"results", Json::array()}};
  for (const StableHloArgument& argument : module.arguments) {
    Json row = {{"name", argument.name}, {"cache", argument.kind == StableHloArgument::Kind::kCache}};
    if (argument.program != nullptr) row["value"] = JsonOf(ValueOf(argument.program));
    json["arguments"].push_back(row);
  }
  for (const StableHloResult& result : module.results) json["results"].push_back(result.name);
  return json;
}

Json CaseJson(const GraphCase& c, const std::string& folder) {
  const Graph graph = Must(ParseGraph(c.graph), c.graph);
  NamedTensors inputs;
  Json json = {{"name", c.name}, {"inputs", Json::object()}, {"want", Json::object()}};
  for (NodeId id : graph.inputs()) {
    const Node& node = graph.node(id);
    inputs[node.path] = InputOf(node);
    json["inputs"][node.path] = JsonOf(inputs[node.path]);
  }
  for (const auto& [name, tensor] : Must(Evaluate(graph, StoredParams(kValues), inputs), c.name)) {
    json["want"][name] = JsonOf(tensor);
  }
  StableHloOptions options{.phase = StableHloPhase::kPrefill, .batch = kBatch, .sequence = kSeq};
  json["whole"] = ModuleJson(graph, options, absl::StrCat(folder, "/", c.name, ".whole"));
  if (!c.decodes) return json;
  json["first"] = kFirst;
  options.context = kContext;
  options.sequence = kFirst;
  json["prefill"] = ModuleJson(graph, options, absl::StrCat(folder, "/", c.name, ".prefill"));
  options.phase = StableHloPhase::kDecode;
  options.sequence = 1;
  json["decode"] = ModuleJson(graph, options, absl::StrCat(folder, "/", c.name, ".decode"));
  return json;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const twinforge::GraphCase& c : twinforge::GraphCases())
    all.push_back(twinforge::CaseJson(c, argv[1]));
  std::ofstream out(std::string(argv[1]) + "/cases.json");
  out << all.dump();
  return out.good() ? 0 : 1;
}
