// A low-rank adapter (LoRA), said in roles: what merge_lora adds to which parameter.
#ifndef TWINFORGE_IR_ADAPTER_H_
#define TWINFORGE_IR_ADAPTER_H_

#include <map>
#include <string>

#include "weights/weight.h"

namespace twinforge {

// W' = W + factor * B A, with W the kernel as a matrix [out, in] (out and in axes merged).
struct AdapterPair {
  WeightPtr a;        // [r, in]
  WeightPtr b;        // [out, r]
  double factor = 1;  // lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora
};

// By role. The programs' sources are named "adapter/<tensor name>".
using Adapter = std::map<std::string, AdapterPair>;

}  // namespace twinforge

#endif  // TWINFORGE_IR_ADAPTER_H_
