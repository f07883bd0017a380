// adapter_config.json of a low-rank adapter, as peft writes and reads it.
//
//   {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"],
//    "rank_pattern": {"layers\\.3\\.self_attn\\.q_proj": 16}, "use_rslora": false,
//    "exclude_modules": ["lm_head"], "layers_to_transform": [0, 1]}
//
// What the sum W + factor B A does not cover is refused (TF1421): DoRA, biases, modules saved whole,
// initialisations that change W, and settings that nobody here has heard of.
#ifndef TWINFORGE_IMPORTERS_ADAPTER_CONFIG_H_
#define TWINFORGE_IMPORTERS_ADAPTER_CONFIG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "importers/config_view.h"

namespace twinforge {

class AdapterConfig {
 public:
  // Of the adapter in folder `path`. TF1420 where there is none, TF1406 for a key of the wrong kind.
  static absl::StatusOr<AdapterConfig> ReadFrom(const std::string& path);

  // What B A is multiplied by: alpha / r, or alpha / sqrt(r) (Kalajdzievski 2023, arXiv:2312.03732). Alpha is
  // what the first pattern of alpha_pattern that fits says, else lora_alpha.
  double Factor(const std::string& module, int64_t rank) const;
  // The rank of `module` ("model.layers.0.self_attn.q_proj"): r, or what the first pattern that fits says.
  int64_t RankOf(const std::string& module) const;
  // "" where the adapter is for `module`, else the key that says it is not: its name is one of target_modules
  // or ends in "." and one, or the pattern fits all of it; exclude_modules does not name it in the same way;
  // and it lies in one of layers_to_transform, where there are some.
  std::string WhyNotFor(const std::string& module) const;
  // Whether target_modules names `module` or has a pattern that fits it, and nothing excludes it: then peft
  // saves its matrices. (Which modules "all-linear" and no target_modules mean depends on the class.)
  bool Wants(const std::string& module) const;
  // The first of target_modules that is none of `modules` (TF1422).
  absl::Status CheckNamed(const std::vector<std::string>& modules) const;

 private:
  // Modules by name, by one pattern, or all of them.
  struct Selection {
    bool all = false;
    std::string pattern;
    std::vector<std::string> names;
    bool Holds(const std::string& module) const;
  };
  static absl::StatusOr<Selection> ReadSelection(const ConfigView& config, const std::string& key);
  absl::Status ReadLayers(const ConfigView& config);
  bool InLayers(const std::string& module) const;

  std::string place_;
  double alpha_ = 1;
  bool rank_stabilised_ = false;
  int64_t rank_ = 8;
  std::vector<std::pair<std::string, int64_t>> rank_pattern_;  // in the file's order
  std::vector<std::pair<std::string, double>> alpha_pattern_;
  Selection targets_;
  Selection excluded_;
  bool some_layers_ = false;
  std::vector<int64_t> layers_;              // layers_to_transform
  std::vector<std::string> layer_patterns_;  // what stands before a layer's number; none: any word
};

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ADAPTER_CONFIG_H_
