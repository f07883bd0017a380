// A record that cannot be true is refused, whichever figure was changed; and one as the tool writes it is
// not.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "base/diagnostic.h"
#include "compiler/record_check.h"
#include "compiler/record_file.h"
#include "compiler/topology.h"

namespace twinforge {
namespace {

// One layer of two weights on four devices.
constexpr char kSound[] = R"(
  topology: "v6e:2x2" devices: 4 chip: "v6e" phase: "decode" batch: 8 context: 64 shards: 4
  twin {
    graph_sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    modules {
      kind: "layers.0" count: 2 partitions: 4
      program_sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
      cycles: 900 argument_bytes: 70000 output_bytes: 512 alias_bytes: 256 copy_cycles: 700
      arguments { name: "q" kind: "weight" bytes: 60000 padded_bytes: 65536 predicted_bytes: 65536 }
      arguments { name: "k" kind: "weight" bytes: 4096 padded_bytes: 4096 }
      copies { bytes: 4096 cycles: 300 } copies { bytes: 4096 cycles: 400 }
      collectives { kind: "all-reduce" count: 2 bytes: 512 group: 4 }
      uncounted { opcode: "dynamic-update-slice" count: 1 }
    }
  })";

int CodeOfCheck(const std::string& text) {
  CompileRecord record;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &record)) << text;
  const std::optional<Diagnostic> d = DiagnosticOf(CheckCompileRecord(record, "record"));
  return d ? d->code : 0;
}

TEST(RecordCheck, TakesWhatTheToolWrites) { EXPECT_EQ(CodeOfCheck(kSound), 0); }

TEST(RecordCheck, TakesAPartThatTheCompilerRefused) {
  const std::string refused = absl::StrReplaceAll(
      kSound, {{"kind: \"layers.0\" count: 2 partitions: 4",
                "kind: \"head\" count: 1 partitions: 4 error: \"no room\" program_sha256: "
                "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\" } modules { kind: "
                "\"layers.0\" count: 2 partitions: 4"}});
  EXPECT_EQ(CodeOfCheck(refused), 0);
}

TEST(RecordCheck, RefusesWhatNoProgramGives) {
  const std::pair<const char*, const char*> changes[] = {
      {"\"v6e:2x2\"", "\"v5e:2x2\""},
      {"\"v6e:2x2\"", "\"v6e:2x2x2\""},
      {"devices: 4", "devices: 8"},
      {"shards: 4", "shards: 2"},
      {"batch: 8", "batch: 0"},
      {"context: 64", "context: -64"},
      {"partitions: 4", "partitions: 8"},
      {"count: 2 partitions", "count: -2 partitions"},
      {"count: 2 partitions", "count: 0 partitions"},
      {"cycles: 900", "cycles: -900"},
      {"cycles: 900", "cycles: 600"},
      {"cycles: 900", "cycles: 9223372036854775807"},
      {"copy_cycles: 700", "copy_cycles: 300"},
      {"cycles: 300", "cycles: -300"},
      {"argument_bytes: 70000", "argument_bytes: 69000"},
      {"argument_bytes: 70000", "argument_bytes: 80000"},
      {"padded_bytes: 65536", "padded_bytes: 100"},
      {"alias_bytes: 256", "alias_bytes: 1024"},
      {"count: 2 bytes", "count: -2 bytes"},
      {"group: 4", "group: 16"},
      {"count: 1 }", "count: -1 }"},
      {"abcdef\"\n    modules", "abcde\"\n    modules"},
      {"program_sha256: \"0", "program_sha256: \"G"},
  };
  for (const auto& [from, to] : changes) {
    const std::string text = absl::StrReplaceAll(kSound, {{from, to}});
    ASSERT_NE(text, kSound) << from;
    EXPECT_EQ(CodeOfCheck(text), 2111) << from << " -> " << to;
  }
}

TEST(RecordCheck, CountsNoPartTwice) {
  CompileRecord record;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kSound, &record));
  *record.mutable_twin()->add_modules() = record.twin().modules(0);
  EXPECT_EQ(DiagnosticOf(CheckCompileRecord(record, "record"))->code, 2111);
}

// 16 MiB of weights in 900 cycles; a loop may have read them uncounted.
TEST(RecordCheck, KnowsThatWeightsAreRead) {
  const std::string large = absl::StrReplaceAll(
      kSound, {{"argument_bytes: 70000", "argument_bytes: 16781312"},
               {"bytes: 60000 padded_bytes: 65536", "bytes: 16777216 padded_bytes: 16777216"}});
  EXPECT_EQ(CodeOfCheck(large), 2111);
  EXPECT_EQ(CodeOfCheck(absl::StrReplaceAll(large, {{"dynamic-update-slice", "while"}})), 0);
}

TEST(Devices, AreTwoToAChipOfTpu7x) {
  EXPECT_EQ(DevicesOf(*ParseTopology("tpu7x:2x2x1")), 8);
  EXPECT_EQ(DevicesOf(*ParseTopology("v4:2x2x1")), 4);
}

}  // namespace
}  // namespace twinforge
