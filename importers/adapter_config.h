// adapter_config.json of a low-rank adapter, as peft writes and reads it.
//
//   {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"],
//    "rank_pattern": {"layers\\.3\\.self_attn\\.q_proj": 16}, "use_rslora": false}
//
// What the sum W + factor B A does not cover is refused (TF1421): DoRA, biases, modules saved whole.
#ifndef TWINFORGE_IMPORTERS_ADAPTER_CONFIG_H_
#define TWINFORGE_IMPORTERS_ADAPTER_CONFIG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace twinforge {

class AdapterConfig {
 public:
  // Of the adapter in folder `path`. TF1420 where there is none, TF1406 for a key of the wrong kind.
  static absl::StatusOr<AdapterConfig> ReadFrom(const std::string& path);

  // What B A is multiplied by: alpha / r, or alpha / sqrt(r) (Kalajdzievski 2023, arXiv:2312.03732).
  double Factor(int64_t rank) const;
  // The rank of `module` ("model.layers.0.self_attn.q_proj"): r, or what the first pattern that fits says.
  int64_t RankOf(const std::string& module) const;
  // Whether the adapter is for `module`: its name is one of target_modules or ends in "." and one, or the
  // pattern fits all of it.
  bool Targets(const std::string& module) const;
  // The first of target_modules that is none of `modules` (TF1422).
  absl::Status CheckNamed(const std::vector<std::string>& modules) const;

 private:
  std::string place_;
  double alpha_ = 1;
  bool rank_stabilised_ = false;
  int64_t rank_ = 8;
  std::vector<std::pair<std::string, int64_t>> rank_pattern_;  // in the file's order
  bool all_ = false;                                           // every module: none named, or "all-linear"
  std::string pattern_;                                        // target_modules as one pattern
  std::vector<std::string> names_;
};

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ADAPTER_CONFIG_H_
