// twinforge eval MODEL: what the model computes, by the reference evaluator.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "cli/onnx_files.h"
#include "cli/open.h"
#include "cli/places.h"
#include "cli/tensor_file.h"
#include "cli/verb.h"
#include "eval/estimate.h"
#include "eval/evaluate.h"
#include "eval/hidden_states.h"
#include "onnx/read.h"

namespace twinforge {
namespace {

struct EvalFlags {
  ModelFlags model;
  std::string inputs, out, dtype;
  bool hidden_states = false;
};

// As transformers names them -> as graphs and the evaluator do.
const std::pair<const char*, const char*> kInputNames[] = {
    {"input_ids", "tokens"}, {"position_ids", "positions"}, {"token_type_ids", "token_types"}};

std::string TheirName(absl::string_view input) {
  for (const auto& [theirs, ours] : kInputNames) {
    if (input == ours) return theirs;
  }
  return std::string(input);
}

// A mask is accepted where it hides nothing: padding is not evaluated.
absl::Status CheckMask(const Tensor& mask) {
  for (double value : mask.values()) {
    if (value == 1) continue;
    return Error(1901, "attention_mask", "the mask hides tokens",
                 "evaluate sequences of one length, without padding");
  }
  return absl::OkStatus();
}

absl::StatusOr<NamedTensors> ReadInputs(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(NamedTensors given, ReadTensorFile(path));
  NamedTensors inputs;
  for (auto& [name, tensor] : given) {
    if (name == "attention_mask") {
      TWIN_RETURN_IF_ERROR(CheckMask(tensor));
      continue;
    }
    std::string known = name;
    for (const auto& [theirs, ours] : kInputNames) {
      if (name == theirs) known = ours;
    }
    if (!inputs.emplace(known, std::move(tensor)).second)
      return Error(1901, TheirName(known),
                   absl::StrCat("it is given twice, as ", JsonQuoted(known, 100), " too"));
  }
  return inputs;
}

// Each id is a row of its table: said here, where the file's names and places are known.
absl::Status CheckIds(const Graph& graph, const NamedTensors& inputs) {
  const std::pair<const char*, const char*> tables[] = {
      {"table", "tokens"}, {"position_table", "positions"}, {"type_table", "token_types"}};
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::kEmbedding) continue;
    for (const auto& [slot, input] : tables) {
      const auto given = inputs.find(input);
      if (!node.Has(slot) || given == inputs.end() || given->second.rank() != 2) continue;
      const ParamAxis& rows = graph.param(node, slot).type.axes[0];
      const bool places = absl::string_view(input) == "positions";
      const int64_t limit = rows.logical - (places ? node.attrs->embedding().position_offset() : 0);
      const int64_t width = given->second.shape()[1];
      for (int64_t i = 0; i < given->second.count(); ++i) {
        const double id = given->second.data()[i];
        if (id >= 0 && id < static_cast<double>(limit)) continue;
        return Error(1901, absl::StrCat(TheirName(input), "[", i / width, ", ", i % width, "]"),
                     absl::StrFormat("%.0f is no place of %s, which has %d", id, rows.name, limit));
      }
    }
  }
  return absl::OkStatus();
}

// Of the default positions, which count from 0; positions that are given were checked one by one.
int64_t PlacesOf(const NamedTensors& inputs) {
  const auto tokens = inputs.find("tokens");
  if (inputs.count("positions") > 0 || tokens == inputs.end() || tokens->second.rank() != 2) return 0;
  return tokens->second.shape()[1];
}

absl::Status CheckWork(const Graph& graph, const NamedTensors& inputs) {
  const auto tokens = inputs.find("tokens");
  if (tokens == inputs.end() || tokens->second.rank() != 2)
    return absl::OkStatus();  // Evaluate says what is wrong
  const Shape& shape = tokens->second.shape();
  TWIN_ASSIGN_OR_RETURN(const EvaluationCost cost,
                        CostOfEvaluation(graph, {{"batch", shape[0]}, {"seq", shape[1]}}));
  const absl::Status affordable = CheckAffordable(cost);
  return affordable.ok() ? affordable : WithPlace(affordable, absl::StrCat("input_ids ", ShapeText(shape)));
}

// The evaluator's complaint about an input, by the name that the file has for it.
absl::Status InTheirNames(const absl::Status& status) {
  const std::optional<Diagnostic> said = DiagnosticOf(status);
  if (!said || said->code != 1901) return status;
  return Error(1901, TheirName(said->place), said->message, said->hint);
}

std::string ShapeOf(const Tensor& tensor) {
  return absl::StrCat(Name(tensor.dtype()), ShapeText(tensor.shape()));
}

absl::StatusOr<Outcome> RunEval(const EvalFlags& flags) {
  // A folder holds the file's own inputs; a safetensors file those of a model.
  std::error_code failed;
  if (IsOnnxPath(flags.model.path) && !std::filesystem::is_regular_file(flags.inputs, failed)) {
    if (!flags.dtype.empty() || flags.hidden_states || !flags.model.config.empty()) {
      return Error(1003, flags.model.path,
                   "an ONNX model says its own types, and has no config and no layers",
                   "leave out --dtype, --hidden-states and --config");
    }
    return EvalOnnx(flags.model.path, flags.inputs, flags.out);
  }
  TWIN_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModelOrTwin(flags.model));
  const Model& model = opened.model;
  TWIN_ASSIGN_OR_RETURN(const NamedTensors inputs, ReadInputs(flags.inputs));
  TWIN_RETURN_IF_ERROR(CheckIds(model.graph, inputs));
  const int64_t places = PlacesOf(inputs);
  TWIN_RETURN_IF_ERROR(CheckPlaces(model.graph, places, "input_ids"));
  TWIN_RETURN_IF_ERROR(CheckWork(model.graph, inputs));
  const std::map<NodeId, std::string> states = HiddenStates(model.graph);
  NamedTensors outputs, hidden;
  EvalOptions options;
  options.keep_params = false;
  if (!flags.dtype.empty()) options.dtype = DTypeFromName(flags.dtype);
  if (flags.hidden_states) {
    options.observe = [&](const Node& node, const Tensor& value) {
      const auto name = states.find(node.id);
      if (name != states.end()) hidden[name->second] = value;
    };
  }
  const StoredParams params(*model.reader);
  absl::StatusOr<NamedTensors> computed = Evaluate(model.graph, params, inputs, options);
  if (!computed.ok()) return InTheirNames(computed.status());
  outputs = *std::move(computed);
  TWIN_RETURN_IF_ERROR(model.reader->CheckUnchanged());
  outputs.insert(hidden.begin(), hidden.end());
  TWIN_RETURN_IF_ERROR(WriteTensorFile(outputs, flags.out));
  Outcome outcome;
  outcome.done = absl::StrCat("the tensors are written to ", flags.out);
  outcome.json["out"] = flags.out;
  outcome.json["outputs"] = Json::object();
  for (const auto& [name, tensor] : outputs) {
    outcome.json["outputs"][name] = {{"dtype", std::string(Name(tensor.dtype()))}, {"shape", tensor.shape()}};
    absl::StrAppend(&outcome.human, name, "  ", ShapeOf(tensor), "\n");
  }
  absl::StrAppend(&outcome.human, "written to ", flags.out, "\n");
  outcome.json["notes"] = NotesOnPlaces(model.config, places);
  for (const std::string& note : NotesOnPlaces(model.config, places))
    absl::StrAppend(&outcome.human, "note: ", note, "\n");
  return outcome;
}

}  // namespace

void AddEval(CLI::App& app, Invocation& invocation) {
  static EvalFlags flags;
  CLI::App* verb = AddVerb(app, invocation, "eval",
                           "what a small model computes, by the reference evaluator: to compare with",
                           "  twinforge eval ./model --inputs ids.safetensors --out logits.safetensors\n"
                           "  twinforge eval ./twin --inputs ids.safetensors --out twin.safetensors --dtype "
                           "f64 --hidden-states\n"
                           "  twinforge eval model.onnx --inputs test_data_set_0 --out outputs\n");
  AddCheckpointFlags(verb, flags.model);
  verb->add_option(
          "--inputs", flags.inputs,
          "a safetensors file with input_ids [batch, seq]; position_ids and "
          "token_type_ids are taken too; or a folder with input_0.pb, ..., for an ONNX file as it is")
      ->required();
  verb->add_option("--out", flags.out,
                   "the safetensors file to write, or for a folder of inputs the folder of output_0.pb, ...")
      ->required();
  verb->add_option("--dtype", flags.dtype, "every floating value in this type; default: the model's own")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  verb->add_flag("--hidden-states", flags.hidden_states, "what each layer leaves behind, too");
  SetRun(verb, invocation, [] { return RunEval(flags); });
}

}  // namespace twinforge
