// Whether a twin's folder holds its own files and no others.
//
// A loader takes what it finds: weights in another format, a tokenizer, a chat template, code. So whatever is
// neither the manifest, nor a file that the manifest lists, nor in the short list below is a stranger,
// whatever its name and kind. Nothing is opened: a FIFO waits for nobody.
//
//   .git, .gitattributes, .gitignore   version control
//   .cache                             what the Hub's client keeps of a download
//   .DS_Store                          a file manager's
//   .journal                           of the run that wrote the twin, killed after its last step but one
#ifndef TWINFORGE_EXPORTERS_PROVE_FILES_H_
#define TWINFORGE_EXPORTERS_PROVE_FILES_H_

#include <string>
#include <vector>

#include "exporters/manifest.h"
#include "exporters/prove.h"

namespace twinforge {

// Rows of the check "files": each stranger in the twin's folder `root`, in the order of their names. Of a
// folder that is one, only its own name.
std::vector<ProofRow> Strangers(const TwinManifest& manifest, const std::string& root);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_PROVE_FILES_H_
