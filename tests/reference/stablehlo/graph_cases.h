// Small graphs in f32, one for each primitive and each block that carries state: what is written of them is
// computed by others (tests/reference/test_stablehlo_ops.py).
#ifndef TWINFORGE_TESTS_REFERENCE_STABLEHLO_GRAPH_CASES_H_
#define TWINFORGE_TESTS_REFERENCE_STABLEHLO_GRAPH_CASES_H_

#include <string>
#include <vector>

namespace twinforge {

struct GraphCase {
  std::string name;
  std::string graph;     // its text
  bool decodes = false;  // generation is tried too
};

std::vector<GraphCase> GraphCases();

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_REFERENCE_STABLEHLO_GRAPH_CASES_H_
