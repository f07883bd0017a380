// A graph becomes code that people read and run: one module a framework, in the twin's folder.
#ifndef TWINFORGE_REFERENCE_REFERENCE_H_
#define TWINFORGE_REFERENCE_REFERENCE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

struct ReferenceFile {
  std::string name;  // "reference/model.py"
  std::string content;
};

// `programs`: for each role the program over the twin's stored tensors that yields its canonical parameter. A
// graph that no code is written for is absl::StatusCode::kUnimplemented with the reason in a sentence.
absl::StatusOr<std::vector<ReferenceFile>> ReferenceFiles(const Graph& graph,
                                                          const std::map<std::string, WeightPtr>& programs);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_REFERENCE_H_
