// The recorded twin's files, planned again: what a forge of the source would write now, beside what the
// manifest says was written.
//
// The plan is from headers alone. The limit at which files were cut is not recorded; it is the largest file
// of several tensors, since any limit that gives these files gives them with that one too.
#ifndef TWINFORGE_PROOF_PLAN_AGAIN_H_
#define TWINFORGE_PROOF_PLAN_AGAIN_H_

#include <string>
#include <vector>

#include "exporters/manifest.h"
#include "exporters/prove.h"
#include "ir/model.h"

namespace twinforge {

// `twin` is what the recorded recipe makes of the source, `root` the twin's folder. Rows of the check
// "recipe" for the layout, and of "files": each file's name, length and header, which tensors lie in it, and
// the index; each row of the manifest about a file that no forge would write. Carried files are judged
// elsewhere (exporters/prove_structure.h).
std::vector<ProofRow> PlanAgain(const TwinManifest& manifest, const Model& twin, const std::string& root);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_PLAN_AGAIN_H_
