// Topologies, options, layouts and optimised programs: read, and refused where they are not sound.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "compiler/compile_options.h"
#include "compiler/hlo_layout.h"
#include "compiler/hlo_record.h"
#include "compiler/record_file.h"
#include "compiler/topology.h"
#include "compiler/xla.pb.h"
#include "cost/shape.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

template <typename Message>
Message Text(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

int CodeOf(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  return d ? d->code : 0;
}

TEST(Topology, IsAGenerationAndItsSides) {
  const absl::StatusOr<TpuTopology> four = ParseTopology("v6e:2x2");
  ASSERT_TRUE(four.ok());
  EXPECT_EQ(four->chip, "v6e");
  EXPECT_EQ(four->chips, 4);
  EXPECT_FALSE(four->one_chip_host);
  EXPECT_TRUE(ParseTopology("v5p:1x1x1")->one_chip_host);
  EXPECT_TRUE(ParseTopology("v4:2x2x1")->megacore);
  EXPECT_EQ(TopologyFor("v5e", 8), "v5e:2x4");
  EXPECT_EQ(TopologyFor("tpu7x", 1), "tpu7x:1x1x1");
  EXPECT_EQ(TopologyFor("v6e", 1000), "");
}

TEST(Topology, RefusesWhatIsNone) {
  for (const char* text : {"", "v6e", "v6e:", "v6e:2", "v6e:2x2x2", "v5p:2x2", "v6e:0x2", "v6e:2x65",
                           "v6e:02x2", "v6e:-1x2", "v6e:2x2 ", "h100:2x2", "v6e:999999999999x2", "v6e:2x\n"})
    EXPECT_EQ(CodeOf(ParseTopology(text).status()), 2103) << text;
}

TEST(Options, AreNamesAndValues) {
  EXPECT_EQ(ParseCompilerFlags({})->at("xla_msa_enable"), "false");
  const absl::StatusOr<CompilerFlags> flags = ParseCompilerFlags({"xla_msa_enable=true", "a=b=c"});
  ASSERT_TRUE(flags.ok());
  EXPECT_EQ(flags->at("xla_msa_enable"), "true");
  EXPECT_EQ(flags->at("a"), "b=c");
  for (const char* word : {"", "=", "=x", "a", "a b=c", "a\n=c"})
    EXPECT_EQ(CodeOf(ParseCompilerFlags({word}).status()), 2107) << word;
}

TEST(Options, SayHowAProgramIsSplit) {
  EXPECT_EQ(*PartitionsOf("module {}"), 1);
  EXPECT_EQ(*PartitionsOf("module attributes {mhlo.num_partitions = 8 : i32}"), 8);
  for (const char* number : {"", "0", "-1", "4097", "99999999999999999999", "x"})
    EXPECT_EQ(CodeOf(PartitionsOf(absl::StrCat("mhlo.num_partitions = ", number)).status()), 2106) << number;
  xla::CompileOptions options;
  ASSERT_TRUE(options.ParseFromString(SerializedCompileOptions("sdy.mesh", 4, {{"a", "b"}})));
  EXPECT_EQ(options.executable_build_options().num_partitions(), 4);
  EXPECT_TRUE(options.executable_build_options().use_shardy_partitioner());
  EXPECT_EQ(options.executable_build_options().device_assignment().computation_devices_size(), 4);
  EXPECT_EQ(options.env_option_overrides().at("a").string_field(), "b");
  ASSERT_TRUE(options.ParseFromString(SerializedCompileOptions("mhlo.sharding", 4, {})));
  EXPECT_FALSE(options.executable_build_options().use_shardy_partitioner());
}

// ---- layouts, as libtpu 0.0.42.1 chose them

struct LayoutCase {
  const char* shape;
  const char* text;
  int64_t bytes;
  int64_t padded;
};

TEST(Layout, IsSaidAndPadded) {
  const LayoutCase cases[] = {
      {"element_type: 16 dimensions: [8, 4096] layout { minor_to_major: [1, 0] tiles { dimensions: [8, 128] "
       "} "
       "tiles { dimensions: [2, 1] } }",
       "bf16[8,4096]{1,0:T(8,128)(2,1)}", 65536, 65536},
      {"element_type: 16 dimensions: [1, 1024, 16, 80] layout { minor_to_major: [1, 3, 2, 0] "
       "tiles { dimensions: [8, 128] } tiles { dimensions: [2, 1] } }",
       "bf16[1,1024,16,80]{1,3,2,0:T(8,128)(2,1)}", 2621440, 2621440},
      {"element_type: 16 dimensions: [1, 1024, 16, 80] layout { minor_to_major: [3, 2, 1, 0] "
       "tiles { dimensions: [8, 128] } tiles { dimensions: [2, 1] } }",
       "bf16[1,1024,16,80]{3,2,1,0:T(8,128)(2,1)}", 2621440, 4194304},
      {"element_type: 16 dimensions: 2048 layout { minor_to_major: 0 tiles { dimensions: 1024 } "
       "tiles { dimensions: 128 } tiles { dimensions: [2, 1] } }",
       "bf16[2048]{0:T(1024)(128)(2,1)}", 4096, 4096},
      {"element_type: 4 layout { tiles { dimensions: 128 } memory_space: 6 }", "s32[]{:T(128)S(6)}", 4, 512},
      {"element_type: 21 dimensions: [64, 128] layout { minor_to_major: [1, 0] element_size_in_bits: 4 }",
       "s4[64,128]{1,0}", 4096, 4096},
      {"element_type: 11 dimensions: [0, 5] layout { minor_to_major: [1, 0] tiles { dimensions: [8, 128] } }",
       "f32[0,5]{1,0:T(8,128)}", 0, 0},
      {"element_type: 11 dimensions: [3]", "f32[3]", 12, 12},
  };
  for (const LayoutCase& each : cases) {
    const absl::StatusOr<HloArray> array = ReadHloArray(Text<xla::Shape>(each.shape));
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(absl::StrCat(array->shape, array->layout), each.text);
    EXPECT_EQ(array->bytes, each.bytes) << each.text;
    EXPECT_EQ(array->padded_bytes, each.padded) << each.text;
  }
}

TEST(Layout, WhatDoesNotHoldTogetherIsRefused) {
  for (const char* shape : {
           "element_type: 13",
           "element_type: 17",
           "element_type: 99 dimensions: 1",
           "element_type: 11 dimensions: -1",
           "element_type: 11 dimensions: [4611686018427387904, 4]",
           "element_type: 11 dimensions: [2, 2] layout { minor_to_major: 0 }",
           "element_type: 11 dimensions: [2, 2] layout { minor_to_major: [0, 0] }",
           "element_type: 11 dimensions: [2, 2] layout { minor_to_major: [0, 7] }",
           "element_type: 11 dimensions: 2 layout { minor_to_major: 0 tiles { } }",
           "element_type: 11 dimensions: 2 layout { minor_to_major: 0 tiles { dimensions: 0 } }",
           "element_type: 11 dimensions: 2 layout { minor_to_major: 0 tiles { dimensions: "
           "-9223372036854775808 } }",
           "element_type: 11 dimensions: 2 layout { minor_to_major: 0 tiles { dimensions: "
           "9223372036854775807 } }",
           "element_type: 11 dimensions: 2 layout { minor_to_major: 0 element_size_in_bits: -3 }",
       })
    EXPECT_EQ(CodeOf(ReadHloArray(Text<xla::Shape>(shape)).status()), 2106) << shape;
}

// ---- programs

// Two weights: one is copied into another layout, the other is multiplied where it lies; then an all-reduce.
constexpr char kProgram[] = R"(
hlo_module {
  entry_computation_id: 1
  computations {
    id: 2
    instructions { id: 20 opcode: "parameter" shape { element_type: 16 dimensions: [256, 512] } }
    instructions { id: 21 opcode: "copy" operand_ids: 20 shape { element_type: 16 dimensions: [256, 512] } }
  }
  computations {
    id: 3
    instructions { id: 30 opcode: "parameter" shape { element_type: 16 dimensions: [8, 512] } }
    instructions { id: 31 opcode: "convolution" operand_ids: 30 shape { element_type: 16 dimensions: [8, 512] } }
  }
  computations {
    id: 4
    instructions { id: 40 opcode: "parameter" shape { element_type: 16 dimensions: [8, 512] } }
    instructions { id: 41 opcode: "all-gather" operand_ids: 40 replica_groups { replica_ids: [0, 1] }
                   shape { element_type: 16 dimensions: [16, 512] } }
  }
  computations {
    id: 1
    root_id: 15
    instructions { id: 11 opcode: "parameter" parameter_number: 1 shape { element_type: 16 dimensions: [256, 512]
      layout { minor_to_major: [1, 0] tiles { dimensions: [8, 128] } } } }
    instructions { id: 10 opcode: "parameter" shape { element_type: 16 dimensions: [8, 100]
      layout { minor_to_major: [1, 0] tiles { dimensions: [8, 128] } } } }
    instructions { id: 16 opcode: "bitcast" operand_ids: 11 shape { element_type: 16 dimensions: [256, 512]
      layout { minor_to_major: [1, 0] tiles { dimensions: [8, 128] } } } }
    instructions { id: 12 name: "fusion.7" opcode: "fusion" operand_ids: 16 called_computation_ids: 2
      backend_config: "{\"window_config\":{\"estimated_cycles\":\"700\"}}"
      shape { element_type: 16 dimensions: [256, 512]
      layout { minor_to_major: [0, 1] tiles { dimensions: [8, 128] } } } }
    instructions { id: 13 opcode: "fusion" operand_ids: [12, 10] called_computation_ids: 3
      backend_config: "{\"window_config\":{\"estimated_cycles\":\"5000\"}}"
      shape { element_type: 16 dimensions: [8, 512] } }
    instructions { id: 14 opcode: "all-reduce" operand_ids: 13
      collective_device_list { iota_replica_group_list { num_replica_groups: 1 num_devices_per_group: 8 } }
      shape { element_type: 16 dimensions: [8, 512] } }
    instructions { id: 17 opcode: "custom-call" custom_call_target: "tpu_custom_call" operand_ids: 14
      called_computation_ids: 4 shape { element_type: 16 dimensions: [8, 512] } }
    instructions { id: 18 opcode: "copy-start" operand_ids: 17 shape { element_type: 13
      tuple_shapes { element_type: 16 dimensions: [8, 512] layout { minor_to_major: [1, 0] memory_space: 1 } }
      tuple_shapes { element_type: 16 dimensions: [8, 512] } tuple_shapes { element_type: 8 } } }
    instructions { id: 19 opcode: "copy-done" operand_ids: 18 shape { element_type: 16 dimensions: [8, 512] } }
    instructions { id: 15 opcode: "tuple" operand_ids: [14, 19] shape { element_type: 13
      tuple_shapes { element_type: 16 dimensions: [8, 512] } tuple_shapes { element_type: 16 dimensions: [8, 512] } } }
  }
})";

absl::StatusOr<CompiledModule> Read(const std::string& text, const ArgumentNotes& notes = {}) {
  return ReadOptimizedProgram(Text<xla::HloModuleWithConfig>(text).SerializeAsString(), notes);
}

std::string Changed(const std::string& from, const std::string& to) {
  std::string text = kProgram;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Program, TellsCyclesCopiesAndCollectives) {
  const auto padded = [](int64_t bits, absl::Span<const int64_t> dims) {
    return PaddedBytes(bits, dims).value();
  };
  const absl::StatusOr<CompiledModule> module = Read(kProgram, {.names = {"x"}, .padded = padded});
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(module->cycles(), 5700);
  ASSERT_EQ(module->arguments_size(), 2);
  EXPECT_EQ(module->arguments(0).name(), "x");
  EXPECT_EQ(module->arguments(0).padded_bytes(), 8 * 128 * 2);
  EXPECT_EQ(module->arguments(0).predicted_bytes(), PaddedBytes(16, {8, 100}).value());
  EXPECT_EQ(module->arguments(1).name(), "argument 1");
  ASSERT_EQ(module->copies_size(), 1);
  EXPECT_EQ(module->copies(0).of(), "argument 1");
  EXPECT_EQ(module->copies(0).cycles(), 700);
  EXPECT_EQ(module->copies(0).from(), "{1,0:T(8,128)}");
  EXPECT_EQ(module->copies(0).to(), "{0,1:T(8,128)}");
  EXPECT_EQ(module->copy_cycles(), 700);
  EXPECT_EQ(module->moves(), 1);
  EXPECT_EQ(module->results_size(), 2);
  ASSERT_EQ(module->collectives_size(), 2);
  EXPECT_EQ(module->collectives(0).kind(), "all-gather");
  EXPECT_EQ(module->collectives(0).group(), 2);
  EXPECT_EQ(module->collectives(1).kind(), "all-reduce");
  EXPECT_EQ(module->collectives(1).group(), 8);
  EXPECT_EQ(module->collectives(1).bytes(), 8 * 512 * 2);
  const std::string iota =
      "collective_device_list { iota_replica_group_list { num_replica_groups: 1 "
      "num_devices_per_group: 8 } }";
  const std::string mesh =
      "mesh_axes_replica_group_list { mesh { axes { size: 3 } axes { size: 4 } } axes { "
      "mesh_axis_index: 1 } axes { sub_axis_info { size: 2 } } }";
  EXPECT_EQ(Read(Changed(iota, mesh))->collectives(1).group(), 8);
  std::vector<std::string> uncounted;
  for (const UncountedOps& ops : module->uncounted()) uncounted.push_back(ops.opcode());
  EXPECT_THAT(uncounted, testing::ElementsAre("all-reduce", "copy-start", "custom-call tpu_custom_call"));
}

TEST(Program, WhatDoesNotHoldTogetherIsRefused) {
  EXPECT_EQ(CodeOf(ReadOptimizedProgram("\xff\xff\xff", {}).status()), 2106);
  EXPECT_EQ(CodeOf(ReadOptimizedProgram("", {}).status()), 2106);
  for (const std::string& text : {
           Changed("entry_computation_id: 1", "entry_computation_id: 9"),
           Changed("root_id: 15", "root_id: 99"),
           Changed("parameter_number: 1", "parameter_number: 0"),
           Changed("parameter_number: 1", "parameter_number: 2"),
           Changed("id: 12 name", "id: 13 name"),
           Changed("    id: 3\n", "    id: 2\n"),
           Changed("operand_ids: 16 called", "operand_ids: 98 called"),
           Changed("operand_ids: 16 called", "called"),
           Changed("\\\"5000\\\"", "\\\"-5\\\""),
           Changed("\\\"5000\\\"", "\\\"99999999999999999999\\\""),
           Changed("\\\"5000\\\"", "\\\"5000"),
           Changed("\\\"5000\\\"", "true"),
       })
    EXPECT_EQ(CodeOf(Read(text).status()), 2106) << text;
}

TEST(Program, AComputationThatCallsItselfIsWork) {
  const absl::StatusOr<CompiledModule> module = Read(Changed(
      "opcode: \"copy\" operand_ids: 20", "opcode: \"fusion\" called_computation_ids: 2 operand_ids: 20"));
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(module->copies_size(), 0);
}

// ---- records

TEST(Record, IsReadAsItWasWritten) {
  CompileRecord record;
  record.set_compiler("libtpu \xc3\xa9 1");
  CompiledModule& module = *record.mutable_twin()->add_modules();
  module.set_kind("layer");
  module.set_count(16);
  module.set_cycles(100);
  module.set_temp_bytes(7);
  module.add_copies()->set_cycles(5);
  CompiledCollective& reduce = *module.add_collectives();
  reduce.set_count(2);
  const std::string text = CompileRecordText(record);
  const absl::StatusOr<CompileRecord> read = ParseCompileRecord(text, "a");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(CompileRecordText(*read), text);
  const CompiledSums sums = SumsOf(read->twin());
  EXPECT_EQ(sums.cycles, 1600);
  EXPECT_EQ(sums.temp_bytes, 7);
  EXPECT_EQ(sums.copies, 16);
  EXPECT_EQ(sums.collectives, 32);
}

TEST(Record, RefusesOtherTexts) {
  const absl::Status status = ParseCompileRecord("twin {\n  nonsense: 1 }", "a").status();
  EXPECT_EQ(CodeOf(status), 2108);
  EXPECT_THAT(DiagnosticOf(status)->place, HasSubstr("a:2:"));
  for (const char* text : {"", "topology: \"x\"", "twin {", "twin { modules { cycles: x } }"})
    EXPECT_EQ(CodeOf(ParseCompileRecord(text, "a").status()), 2108) << text;
}

TEST(Record, SumsEndAtTheLargestNumber) {
  CompiledModel model;
  CompiledModule& module = *model.add_modules();
  module.set_cycles(int64_t{1} << 62);
  module.set_count(int64_t{1} << 40);
  EXPECT_EQ(SumsOf(model).cycles, std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace twinforge
