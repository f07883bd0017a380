#include "cli/onnx_files.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "cli/new_folder.h"
#include "onnx/describe.h"
#include "onnx/facts.h"
#include "onnx/read.h"
#include "onnx/run.h"
#include "onnx/value_file.h"
#include "report/table.h"

namespace twinforge {
namespace {

std::string Names(const std::vector<std::pair<std::string, std::string>>& values) {
  return absl::StrJoin(values, "\n            ", [](std::string* out, const auto& value) {
    absl::StrAppend(out, value.first, "  ", value.second);
  });
}

Json Pairs(const std::vector<std::pair<std::string, std::string>>& values) {
  Json json = Json::array();
  for (const auto& [name, type] : values) json.push_back({{"name", name}, {"type", type}});
  return json;
}

// Extents as numbers or texts, null where not known.
Json ShapeJson(const OnnxFact& fact) {
  if (!fact.shape) return nullptr;
  Json json = Json::array();
  for (const KnownDim& extent : *fact.shape) {
    if (!extent) {
      json.push_back(nullptr);
    } else if (extent->value()) {
      json.push_back(*extent->value());
    } else {
      json.push_back(extent->Text());
    }
  }
  return json;
}

void AddShapes(const OnnxModel& model, const OnnxFacts& facts, Outcome& outcome) {
  const OnnxShapes shapes = DescribeShapes(model, facts);
  absl::StrAppend(&outcome.human, "shapes: ", Grouped(shapes.full), " of ", Grouped(shapes.values),
                  " values that nodes make are known in full\n");
  Json outputs = Json::array();
  for (const auto& [name, fact] : shapes.outputs) {
    absl::StrAppend(&outcome.human, "  ", name, "  ", FactText(fact), "\n");
    outputs.push_back({{"name", name},
                       {"type", fact.type ? Json(std::string(ElementTypeName(*fact.type))) : Json(nullptr)},
                       {"shape", ShapeJson(fact)}});
  }
  outcome.json["shapes"] = {
      {"values", shapes.values}, {"full", shapes.full}, {"outputs", outputs}, {"renamed", facts.renamed()}};
  outcome.json["mismatches"] = Json::array();
  for (const OnnxMismatch& mismatch : facts.mismatches()) {
    absl::StrAppend(&outcome.human, "warning: ", mismatch.node, ": ", mismatch.message, "\n");
    outcome.json["mismatches"].push_back({{"node", mismatch.node}, {"message", mismatch.message}});
  }
}

std::string HumanText(const OnnxDescription& d, const std::string& path) {
  std::string text =
      absl::StrCat(path, ": ONNX, IR version ", d.ir_version, d.producer.empty() ? "" : ", by ", d.producer,
                   d.producer_version.empty() ? "" : " ", d.producer_version, "\n");
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty())
      absl::StrAppend(&text, "  ", name, std::string(10 - std::string(name).size(), ' '), value, "\n");
  };
  line("opsets", absl::StrJoin(d.opsets, ", ", absl::PairFormatter(" ")));
  line("nodes",
       absl::StrCat(Grouped(d.nodes),
                    d.graphs == 0 ? "" : absl::StrCat(" in ", d.graphs, " subgraphs, ", d.depth, " deep")));
  line("functions", absl::StrJoin(d.functions, ", "));
  line("inputs", Names(d.inputs));
  line("outputs", Names(d.outputs));
  int64_t bytes = 0;
  for (const auto& [type, count] : d.bytes_by_type) bytes += count;
  line("weights",
       absl::StrCat(Grouped(d.initializers), " initializers, ", HumanBytes(bytes),
                    d.sparse_initializers == 0 ? "" : absl::StrCat(", ", d.sparse_initializers, " sparse")));
  line("files", absl::StrJoin(d.external_files, ", "));
  line("metadata", absl::StrJoin(d.metadata_keys, ", "));
  Table operators({"operator", "nodes", "evaluated"});
  for (const auto& [name, count] : d.operators) {
    const auto refused = d.refused.find(name);
    operators.Row({name, Grouped(count), refused == d.refused.end() ? "yes" : refused->second});
  }
  absl::StrAppend(&text, operators.Text());
  for (const std::string& warning : d.warnings) absl::StrAppend(&text, "note: ", warning, "\n");
  return text;
}

}  // namespace

absl::StatusOr<Outcome> InspectOnnx(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(const std::unique_ptr<OnnxModel> model, ReadOnnxModel(path));
  TWIN_ASSIGN_OR_RETURN(const OnnxFacts facts, InferOnnx(*model));
  const OnnxDescription d = Describe(*model);
  Outcome outcome;
  outcome.human = HumanText(d, path);
  AddShapes(*model, facts, outcome);
  outcome.json["format"] = "onnx";
  outcome.json["ir_version"] = d.ir_version;
  outcome.json["producer"] = {{"name", d.producer}, {"version", d.producer_version}};
  outcome.json["opsets"] = d.opsets;
  outcome.json["inputs"] = Pairs(d.inputs);
  outcome.json["outputs"] = Pairs(d.outputs);
  outcome.json["nodes"] = d.nodes;
  outcome.json["subgraphs"] = d.graphs;
  outcome.json["depth"] = d.depth;
  outcome.json["operators"] = d.operators;
  outcome.json["functions"] = d.functions;
  outcome.json["initializers"] = d.initializers;
  outcome.json["sparse_initializers"] = d.sparse_initializers;
  outcome.json["bytes_by_dtype"] = d.bytes_by_type;
  outcome.json["external_files"] = d.external_files;
  outcome.json["metadata_keys"] = d.metadata_keys;
  outcome.json["quantization_annotations"] = d.quantisation_annotations;
  outcome.json["refused"] = d.refused;
  outcome.json["warnings"] = d.warnings;
  return outcome;
}

absl::StatusOr<Outcome> EvalOnnx(const std::string& path, const std::string& inputs, const std::string& out) {
  TWIN_ASSIGN_OR_RETURN(const std::unique_ptr<OnnxModel> model, ReadOnnxModel(path));
  TWIN_ASSIGN_OR_RETURN(const auto given, ReadInputFolder(*model, inputs));
  TWIN_ASSIGN_OR_RETURN(const std::vector<OnnxValue> outputs, OnnxRunner(*model).Run(given));
  Outcome outcome;
  outcome.json["out"] = out;
  outcome.json["outputs"] = Json::array();
  std::vector<std::pair<std::string, std::string>> files;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name(model->graph.names[model->graph.outputs[i]]);
    const std::string file = absl::StrCat("output_", i, ".pb");
    files.emplace_back(file, SerialisedValue(outputs[i], name));
    outcome.json["outputs"].push_back({{"name", name}, {"file", file}, {"type", ValueText(outputs[i])}});
    absl::StrAppend(&outcome.human, file, "  ", name, "  ", ValueText(outputs[i]), "\n");
  }
  TWIN_RETURN_IF_ERROR(WriteNewFolder(files, out));
  outcome.done = absl::StrCat("the outputs are written to ", out);
  absl::StrAppend(&outcome.human, "written to ", out, "\n");
  return outcome;
}

}  // namespace twinforge
