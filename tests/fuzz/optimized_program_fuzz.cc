// Any bytes, and any message of an optimised program: ReadOptimizedProgram ends; what it refuses it names;
// what it takes has as many cycles in its copies as in all, at most, and no array smaller padded than bare.
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/diagnostic.h"
#include "compiler/hlo_record.h"
#include "compiler/xla.pb.h"

namespace {

void Read(const std::string& bytes) {
  const auto module = twinforge::ReadOptimizedProgram(bytes, {});
  if (!module.ok()) {
    const auto diagnostic = twinforge::DiagnosticOf(module.status());
    TWIN_CHECK(diagnostic.has_value() && diagnostic->code == 2106, "a refusal without its diagnostic");
    return;
  }
  TWIN_CHECK(module->copy_cycles() >= 0 && module->copy_cycles() <= module->cycles(), "copies beyond all");
  for (const twinforge::CompiledArray& array : module->arguments())
    TWIN_CHECK(array.bytes() >= 0 && array.padded_bytes() >= array.bytes(), "padding below nothing");
}

// Says nothing of what does not parse.
class Silence : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Read(text);
  Silence silence;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silence);
  parser.AllowPartialMessage(true);
  parser.SetRecursionLimit(32);
  twinforge::xla::HloModuleWithConfig program;
  if (parser.ParseFromString(text, &program)) Read(program.SerializeAsString());
  return 0;
}

extern const char* const kSeeds[];
extern const size_t kSeedCount;
const char* const kSeeds[] = {
    "hlo_module { entry_computation_id: 1 computations { id: 1 root_id: 2 instructions { id: 2 opcode: "
    "\"parameter\" "
    "shape { element_type: 16 dimensions: [3, 80] layout { minor_to_major: [1, 0] tiles { dimensions: [8, "
    "128] } "
    "tiles { dimensions: [2, 1] } } } } } }",
    "hlo_module { entry_computation_id: 1 computations { id: 1 root_id: 3 instructions { id: 2 opcode: "
    "\"parameter\" "
    "shape { element_type: 11 dimensions: [8] } } instructions { id: 3 opcode: \"fusion\" operand_ids: 2 "
    "called_computation_ids: 4 backend_config: "
    "\"{\\\"window_config\\\":{\\\"estimated_cycles\\\":\\\"7\\\"}}\" shape { "
    "element_type: 11 dimensions: [8] } } } computations { id: 4 instructions { id: 5 opcode: \"copy\" } } }",
    "hlo_module { entry_computation_id: 1 computations { id: 1 root_id: 3 instructions { id: 3 opcode: "
    "\"all-reduce-start\" replica_groups { replica_ids: [0, 1] } shape { element_type: 13 tuple_shapes { "
    "element_type: "
    "11 } tuple_shapes { element_type: 11 } } } } }",
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
