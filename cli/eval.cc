// twinforge eval MODEL: what the model computes, by the reference evaluator.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/open.h"
#include "cli/tensor_file.h"
#include "cli/verb.h"
#include "eval/evaluate.h"
#include "eval/hidden_states.h"

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
    inputs[known] = std::move(tensor);
  }
  return inputs;
}

std::string ShapeOf(const Tensor& tensor) {
  return absl::StrCat(Name(tensor.dtype()), ShapeText(tensor.shape()));
}

absl::StatusOr<Outcome> RunEval(const EvalFlags& flags) {
  TWIN_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModelOrTwin(flags.model));
  const Model& model = opened.model;
  if (!model.has_bytes()) return Error(1003, "twinforge eval", "a config alone has no tensors to evaluate");
  TWIN_ASSIGN_OR_RETURN(const NamedTensors inputs, ReadInputs(flags.inputs));
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
  TWIN_ASSIGN_OR_RETURN(outputs, Evaluate(model.graph, params, inputs, options));
  TWIN_RETURN_IF_ERROR(model.reader->CheckUnchanged());
  outputs.insert(hidden.begin(), hidden.end());
  TWIN_RETURN_IF_ERROR(WriteTensorFile(outputs, flags.out));
  Outcome outcome;
  outcome.json["out"] = flags.out;
  outcome.json["outputs"] = Json::object();
  for (const auto& [name, tensor] : outputs) {
    outcome.json["outputs"][name] = {{"dtype", std::string(Name(tensor.dtype()))}, {"shape", tensor.shape()}};
    absl::StrAppend(&outcome.human, name, "  ", ShapeOf(tensor), "\n");
  }
  absl::StrAppend(&outcome.human, "written to ", flags.out, "\n");
  return outcome;
}

}  // namespace

void AddEval(CLI::App& app, Invocation& invocation) {
  static EvalFlags flags;
  CLI::App* verb = AddVerb(app, invocation, "eval",
                           "what a small model computes, by the reference evaluator: to compare with",
                           "  twinforge eval ./model --inputs ids.safetensors --out logits.safetensors\n"
                           "  twinforge eval ./twin --inputs ids.safetensors --out twin.safetensors --dtype "
                           "f64 --hidden-states\n");
  AddModelFlags(verb, flags.model);
  verb->add_option("--inputs", flags.inputs,
                   "a safetensors file with input_ids [batch, seq]; position_ids and "
                   "token_type_ids are taken too")
      ->required();
  verb->add_option("--out", flags.out, "the safetensors file to write")->required();
  verb->add_option("--dtype", flags.dtype, "every floating value in this type; default: the model's own")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  verb->add_flag("--hidden-states", flags.hidden_states, "what each layer leaves behind, too");
  SetRun(verb, invocation, [] { return RunEval(flags); });
}

}  // namespace twinforge
