// Tiny checkpoints of the families, made from their configs: names and shapes come from the family file,
// bytes from a counter, so that no two elements of a tensor are equal and a misplaced one shows.
#ifndef TWINFORGE_TESTS_IMPORTERS_SMALL_CHECKPOINTS_H_
#define TWINFORGE_TESTS_IMPORTERS_SMALL_CHECKPOINTS_H_

#include <map>
#include <string>
#include <vector>

#include "ir/model.h"
#include "weights/weight.h"

namespace twinforge {

struct SmallConfig {
  std::string name;  // "qwen3_moe"
  std::string json;
};

// At least one for each model_type, more where a family has forms.
const std::vector<SmallConfig>& SmallConfigs();
const std::string& SmallConfigOf(const std::string& name);

// A tensor to write. Bytes are made unless given.
struct TensorBytes {
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;
};
using Tensors = std::map<std::string, TensorBytes>;

// The tensors of `model.layouts[layout]`, untied ones too where `with_tied`.
Tensors TensorsOf(const Model& model, size_t layout, bool with_tied = false);
// One safetensors file, canonical: tensors in the order of their names, no hole.
std::string SafetensorsFile(const Tensors& tensors);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_IMPORTERS_SMALL_CHECKPOINTS_H_
