// The package of Pallas kernels that lies beside emitted JAX code.
#ifndef TWINFORGE_REFERENCE_KERNEL_FILES_H_
#define TWINFORGE_REFERENCE_KERNEL_FILES_H_

#include <string>
#include <vector>

#include "reference/reference.h"

namespace twinforge {

// reference/kernels/ with the modules `names` ("decode_attention") and what they import. No names, no files.
std::vector<ReferenceFile> KernelFiles(const std::vector<std::string>& names);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_KERNEL_FILES_H_
