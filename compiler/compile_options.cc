#include "compiler/compile_options.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "compiler/xla.pb.h"

namespace twinforge {
namespace {

constexpr int64_t kMostPartitions = 4096;

bool IsFlagName(absl::string_view name) {
  for (const char c : name)
    if (!absl::ascii_isalnum(c) && c != '_') return false;
  return !name.empty() && name.size() <= 200;
}

// The same options give the same bytes: maps are written in order.
std::string Serialized(const xla::CompileOptions& options) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  options.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

}  // namespace

absl::StatusOr<CompilerFlags> ParseCompilerFlags(const std::vector<std::string>& words) {
  CompilerFlags flags = {{"xla_msa_enable", "false"}};
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || !IsFlagName(word.substr(0, equals)) || word.size() > 4096) {
      return Error(2107, absl::StrCat("--option ", JsonQuoted(word, 100)), "is no NAME=VALUE",
                   "as --option xla_msa_enable=true");
    }
    flags[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return flags;
}

absl::StatusOr<int64_t> PartitionsOf(absl::string_view program) {
  const size_t at = program.find("mhlo.num_partitions");
  if (at == absl::string_view::npos) return 1;
  absl::string_view rest = program.substr(at, 80);
  absl::ConsumePrefix(&rest, "mhlo.num_partitions");
  rest = absl::StripLeadingAsciiWhitespace(rest);
  int64_t partitions = 0;
  if (absl::ConsumePrefix(&rest, "=")) {
    rest = absl::StripLeadingAsciiWhitespace(rest);
    size_t digits = 0;
    while (digits < rest.size() && absl::ascii_isdigit(rest[digits])) ++digits;
    if (!absl::SimpleAtoi(rest.substr(0, digits), &partitions)) partitions = 0;
  }
  if (partitions < 1 || partitions > kMostPartitions) {
    return Error(2106, "the program", "says no number of partitions from 1 to 4096 in mhlo.num_partitions");
  }
  return partitions;
}

std::string SerializedCompileOptions(absl::string_view program, int64_t partitions,
                                     const CompilerFlags& flags) {
  xla::CompileOptions options;
  xla::ExecutableBuildOptions& build = *options.mutable_executable_build_options();
  build.set_device_ordinal(-1);
  build.set_num_replicas(1);
  build.set_num_partitions(partitions);
  build.set_use_spmd_partitioning(true);
  build.set_use_shardy_partitioner(absl::StrContains(program, "sdy.") ||
                                   !absl::StrContains(program, "mhlo.sharding"));
  // Results lie where the partitioner wants them, unless the program says; arguments as it says.
  build.add_allow_spmd_sharding_propagation_to_output(true);
  build.add_allow_spmd_sharding_propagation_to_parameters(false);
  xla::DeviceAssignment& devices = *build.mutable_device_assignment();
  devices.set_replica_count(1);
  devices.set_computation_count(static_cast<int32_t>(partitions));
  for (int64_t device = 0; device < partitions; ++device)
    devices.add_computation_devices()->add_replica_device_ids(device);
  for (const auto& [name, value] : flags)
    (*options.mutable_env_option_overrides())[name].set_string_field(value);
  return Serialized(options);
}

}  // namespace twinforge
