// Prints the predictor of compiled cycles beside the compiler's own words: docs/cost_compiler.md carries this
// text.
#include <iostream>

#include "cost/compiled_cycles.h"
#include "cost/compiled_rows.h"
#include "cost/compiled_table.h"

int main() {
  std::cout << twinforge::CompiledTable(twinforge::Trials(twinforge::Fit(), twinforge::CompiledRows()));
  std::cout << "\nModels compiled later, in no fit:\n\n"
            << twinforge::CompiledTable(twinforge::Trials(twinforge::Fit(), twinforge::UnseenRows()));
  return std::cout ? 0 : 1;
}
