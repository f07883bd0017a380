// Data files compiled into the binary (cmake's embed_data), so that it is one file.
#ifndef TWINFORGE_BASE_EMBEDDED_H_
#define TWINFORGE_BASE_EMBEDDED_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace twinforge {

struct EmbeddedFile {
  absl::string_view name;  // "llama.textproto"
  absl::string_view text;
};

}  // namespace twinforge

#endif  // TWINFORGE_BASE_EMBEDDED_H_
