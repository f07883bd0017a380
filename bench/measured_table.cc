#include "bench/measured_table.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "importers/importer.h"

namespace twinforge {

// One config there has a time step limit of Infinity, as Python writes it and JSON cannot; no cost depends on
// it.
Models::Models(const std::string& configs) {
  const nlohmann::json json = nlohmann::json::parse(absl::StrReplaceAll(configs, {{"Infinity", "null"}}));
  for (const nlohmann::json& model : json["models"]) configs_.emplace(model["name"], model["config"].dump());
}

absl::StatusOr<const Graph*> Models::Find(const std::string& name) {
  const auto known = graphs_.find(name);
  if (known != graphs_.end()) return &known->second;
  const auto config = configs_.find(name);
  if (config == configs_.end()) return absl::NotFoundError(absl::StrCat("no config of ", name));
  TWIN_ASSIGN_OR_RETURN(Model model, ModelFromConfigText(config->second, name));
  return &graphs_.emplace(name, std::move(model.graph)).first->second;
}

std::string Canonical(absl::string_view name) {
  const std::pair<absl::string_view, absl::string_view> kSame[] = {
      {"nvidia/DeepSeek-R1-NVFP4", "deepseek-ai/DeepSeek-R1"},
      {"nvidia/Llama-3.1-8B-Instruct-FP8", "meta-llama/Llama-3.1-8B-Instruct"},
      {"nvidia/Qwen3-32B-NVFP4", "Qwen/Qwen3-32B"},
      {"Llama3.1-70B", "meta-llama/Llama-3.1-70B"},
      {"Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct"},
      {"Llama3.1-8B", "meta-llama/Llama-3.1-8B"},
      {"Llama2-7B", "meta-llama/Llama-2-7b-hf"},
      {"Llama2-70B", "meta-llama/Llama-2-70b-hf"},
      {"Mistral-7B", "mistralai/Mistral-7B-v0.1"},
      {"Mixtral-8x7B", "mistralai/Mixtral-8x7B-v0.1"},
      {"DeepSeek-V3", "deepseek-ai/DeepSeek-V3"},
      {"Qwen3-32B", "Qwen/Qwen3-32B"}};
  for (const auto& [other, own] : kSame) {
    if (other == name) return std::string(own);
  }
  return std::string(name);
}

}  // namespace twinforge
