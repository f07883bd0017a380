// Any bytes: ParseCsv ends; what it accepts is a table, every row as wide as its header, lines ascending;
// what it refuses, it names.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/csv.h"
#include "base/diagnostic.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = twinforge::ParseCsv(text, "fuzz.csv");
  if (!table.ok()) {
    const auto diagnostic = twinforge::DiagnosticOf(table.status());
    TWIN_CHECK(diagnostic.has_value() && diagnostic->code == 1006, "a refusal without its diagnostic");
    return 0;
  }
  for (size_t i = 0; i < table->columns.size(); ++i)
    TWIN_CHECK(table->Find(table->columns[i]) == static_cast<int>(i), "a column is found at another place");
  int64_t line = 1;
  for (const twinforge::CsvTable::Row& row : table->rows) {
    TWIN_CHECK(row.cells.size() == table->columns.size(), "a row is not as wide as the header");
    TWIN_CHECK(row.line > line, "two rows begin on one line");
    line = row.line;
  }
  return 0;
}

extern const char* const kSeeds[];
extern const size_t kSeedCount;
const char* const kSeeds[] = {
    "batch,context\n8,\"2,048\"\n16,\n",
    "a,\"b\"\"c\"\r\n\"1\n2\",3\r\n\r\n4,\"\"",
    "chip\nv6e\nv5e",
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
