// A low-rank adapter (LoRA) as peft saves it, said in a model's roles.
//
//   adapter_config.json          r, lora_alpha, use_rslora, ...
//   adapter_model.safetensors    base_model.model.<module>.lora_A.weight [r, in]
//                                base_model.model.<module>.lora_B.weight [out, r]
//
// Each tensor is of a module that the config names, in the rank that it says (importers/adapter_config.h).
// <module>.weight is a stored tensor of the model's layout. Where that one holds several roles (fused q, k
// and v), B is cut as the tensor is and A is shared. Embeddings and experts are refused.
#ifndef TWINFORGE_IMPORTERS_ADAPTER_H_
#define TWINFORGE_IMPORTERS_ADAPTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "ir/adapter.h"
#include "ir/model.h"

namespace twinforge {

// The adapter in folder `path`. `model` gets its tensors too: sources named "adapter/<tensor>" (a second
// adapter's "adapter/2/<tensor>") and a reader that finds them. Its file is not one of model.files: it lies
// elsewhere, and no twin gives it back.
absl::StatusOr<Adapter> LoadAdapter(const std::string& path, Model& model);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ADAPTER_H_
