#include "compiler/pjrt_plugin.h"

#include <dlfcn.h>
#include <pjrt/pjrt_c_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr size_t kLongestMessage = 64 << 10;
constexpr size_t kLargestProgram = size_t{1} << 30;
constexpr int kMajor = 0;
constexpr int kOldestMinor = 40;  // since when PJRT_Executable_GetCompiledMemoryStats is there

// Without the first, a query for a machine's metadata hangs; the second lets several processes compile; the
// others spare the library a search for devices.
constexpr const char* kEnvironment[][2] = {
    {"TPU_SKIP_MDS_QUERY", "1"},
    {"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"},
    {"TPU_WORKER_HOSTNAMES", "localhost"},
    {"TPU_ACCELERATOR_TYPE", "v5litepod-4"},
};

// Arguments of a call, with its size as the interface wants it.
template <typename Args>
Args MakeArgs(size_t size) {
  Args args{};
  args.struct_size = size;
  return args;
}
#define TWIN_PJRT_ARGS(call) MakeArgs<PJRT_##call##_Args>(PJRT_##call##_Args_STRUCT_SIZE)

// `call` of the interface, or null where this library has none: its table may end before it.
#define TWIN_PJRT_FUNCTION(api, call)                                                                   \
  (offsetof(PJRT_Api, PJRT_##call) + sizeof((api).PJRT_##call) <= (api).struct_size ? (api).PJRT_##call \
                                                                                    : nullptr)

class Plugin {
 public:
  explicit Plugin(const PJRT_Api& api) : api_(api) {}

  // Those without which nothing goes.
  absl::Status CheckTable() const {
    const bool whole = Has(TWIN_PJRT_FUNCTION(api_, Error_Destroy)) &&
                       Has(TWIN_PJRT_FUNCTION(api_, Error_Message)) &&
                       Has(TWIN_PJRT_FUNCTION(api_, Plugin_Initialize)) &&
                       Has(TWIN_PJRT_FUNCTION(api_, TopologyDescription_Create)) &&
                       Has(TWIN_PJRT_FUNCTION(api_, TopologyDescription_PlatformVersion)) &&
                       Has(TWIN_PJRT_FUNCTION(api_, TopologyDescription_GetDeviceDescriptions)) &&
                       Has(TWIN_PJRT_FUNCTION(api_, Compile)) &&
                       Has(TWIN_PJRT_FUNCTION(api_, Executable_OptimizedProgram)) &&
                       Has(TWIN_PJRT_FUNCTION(api_, Executable_GetCompiledMemoryStats));
    if (whole) return absl::OkStatus();
    return absl::InternalError("its table of functions lacks one that compiling needs");
  }

  absl::Status Initialize() const {
    auto args = TWIN_PJRT_ARGS(Plugin_Initialize);
    return Said(api_.PJRT_Plugin_Initialize(&args));
  }

  absl::StatusOr<PJRT_TopologyDescription*> MakeTopology(const TpuTopology& topology) const {
    static constexpr int64_t kOneChip[] = {1, 1, 1};
    std::vector<PJRT_NamedValue> options;
    if (topology.one_chip_host) {
      PJRT_NamedValue& bounds = options.emplace_back(Named("chips_per_host_bounds"));
      bounds.type = PJRT_NamedValue_kInt64List;
      bounds.int64_array_value = kOneChip;
      bounds.value_size = 3;
    }
    if (topology.megacore) {
      PJRT_NamedValue& config = options.emplace_back(Named("chip_config_name"));
      config.type = PJRT_NamedValue_kString;
      config.string_value = "megacore";
      config.value_size = 8;
    }
    auto args = TWIN_PJRT_ARGS(TopologyDescription_Create);
    args.topology_name = topology.name.data();
    args.topology_name_size = topology.name.size();
    args.create_options = options.data();
    args.num_options = options.size();
    TWIN_RETURN_IF_ERROR(Said(api_.PJRT_TopologyDescription_Create(&args)));
    if (args.topology == nullptr) return absl::InternalError("it made no topology and names no error");
    return args.topology;
  }

  absl::Status DescribeTopology(PJRT_TopologyDescription* topology, CompilerAnswer& answer) const {
    auto version = TWIN_PJRT_ARGS(TopologyDescription_PlatformVersion);
    version.topology = topology;
    TWIN_RETURN_IF_ERROR(Said(api_.PJRT_TopologyDescription_PlatformVersion(&version)));
    answer.set_platform_version(Text(version.platform_version, version.platform_version_size));
    auto devices = TWIN_PJRT_ARGS(TopologyDescription_GetDeviceDescriptions);
    devices.topology = topology;
    TWIN_RETURN_IF_ERROR(Said(api_.PJRT_TopologyDescription_GetDeviceDescriptions(&devices)));
    answer.set_topology_devices(static_cast<int64_t>(devices.num_descriptions));
    return absl::OkStatus();
  }

  absl::StatusOr<PJRT_Executable*> Compile(PJRT_TopologyDescription* topology, const std::string& text,
                                           const std::string& options) const {
    std::string code = text;
    PJRT_Program program{};
    program.struct_size = PJRT_Program_STRUCT_SIZE;
    program.code = code.data();
    program.code_size = code.size();
    program.format = "mlir";
    program.format_size = 4;
    auto args = TWIN_PJRT_ARGS(Compile);
    args.topology = topology;
    args.program = &program;
    args.compile_options = options.data();
    args.compile_options_size = options.size();
    TWIN_RETURN_IF_ERROR(Said(api_.PJRT_Compile(&args)));
    if (args.executable == nullptr) return absl::InternalError("it made no program and names no error");
    return args.executable;
  }

  absl::Status DescribeMemory(PJRT_Executable* executable, CompilerAnswer& answer) const {
    auto args = TWIN_PJRT_ARGS(Executable_GetCompiledMemoryStats);
    args.executable = executable;
    TWIN_RETURN_IF_ERROR(Said(api_.PJRT_Executable_GetCompiledMemoryStats(&args)));
    answer.set_generated_code_bytes(args.generated_code_size_in_bytes);
    answer.set_argument_bytes(args.argument_size_in_bytes);
    answer.set_output_bytes(args.output_size_in_bytes);
    answer.set_alias_bytes(args.alias_size_in_bytes);
    answer.set_temp_bytes(args.temp_size_in_bytes);
    return absl::OkStatus();
  }

  absl::Status CopyProgram(PJRT_Executable* executable, CompilerAnswer& answer) const {
    PJRT_Program program{};
    program.struct_size = PJRT_Program_STRUCT_SIZE;
    auto args = TWIN_PJRT_ARGS(Executable_OptimizedProgram);
    args.executable = executable;
    args.program = &program;
    TWIN_RETURN_IF_ERROR(Said(api_.PJRT_Executable_OptimizedProgram(&args)));  // its size
    const std::string format = Text(program.format, program.format_size);
    if (!absl::StartsWith(format, "hlo_with_config"))
      return absl::InternalError(
          absl::StrCat("the optimised program comes as \"", format, "\", not hlo_with_config"));
    if (program.code_size > kLargestProgram)
      return absl::InternalError(absl::StrCat("the optimised program has ", program.code_size, " bytes"));
    const size_t size = program.code_size;
    std::string code(size, '\0');
    program.code = code.data();
    TWIN_RETURN_IF_ERROR(Said(api_.PJRT_Executable_OptimizedProgram(&args)));  // its bytes
    if (program.code_size != size) return absl::InternalError("the optimised program changed its size");
    answer.set_optimized_program(std::move(code));
    return absl::OkStatus();
  }

 private:
  template <typename Function>
  static bool Has(Function function) {
    return function != nullptr;
  }

  static PJRT_NamedValue Named(absl::string_view name) {
    PJRT_NamedValue value{};
    value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    value.name = name.data();
    value.name_size = name.size();
    return value;
  }

  static std::string Text(const char* text, size_t size) {
    return text == nullptr ? "" : std::string(text, std::min(size, kLongestMessage));
  }

  // The library's error in its own words, and freed.
  absl::Status Said(PJRT_Error* error) const {
    if (error == nullptr) return absl::OkStatus();
    auto message = TWIN_PJRT_ARGS(Error_Message);
    message.error = error;
    api_.PJRT_Error_Message(&message);
    const std::string text = Text(message.message, message.message_size);
    auto destroy = TWIN_PJRT_ARGS(Error_Destroy);
    destroy.error = error;
    api_.PJRT_Error_Destroy(&destroy);
    return absl::InternalError(text.empty() ? "an error without a message" : text);
  }

  const PJRT_Api& api_;
};

absl::StatusOr<const PJRT_Api*> LoadApi(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return absl::InternalError(why == nullptr ? "it cannot be loaded" : why);
  }
  using GetApi = const PJRT_Api* (*)();
  const auto get = reinterpret_cast<GetApi>(dlsym(library, "GetPjrtApi"));
  if (get == nullptr) return absl::InternalError("it has no function GetPjrtApi: it is no PJRT plugin");
  const PJRT_Api* const api = get();
  if (api == nullptr) return absl::InternalError("GetPjrtApi gives nothing");
  return api;
}

absl::Status CheckVersion(const PJRT_Api& api, CompilerAnswer& answer) {
  constexpr size_t kUntilVersion = offsetof(PJRT_Api, pjrt_api_version) + sizeof(PJRT_Api_Version);
  if (api.struct_size < kUntilVersion) return absl::InternalError("its table of functions is too short");
  answer.set_interface_major(api.pjrt_api_version.major_version);
  answer.set_interface_minor(api.pjrt_api_version.minor_version);
  if (api.pjrt_api_version.major_version == kMajor && api.pjrt_api_version.minor_version >= kOldestMinor)
    return absl::OkStatus();
  return absl::InternalError(absl::StrCat("it speaks PJRT ", answer.interface_major(), ".",
                                          answer.interface_minor(), "; this program speaks ", kMajor, ".",
                                          kOldestMinor, " and later of ", kMajor));
}

absl::StatusOr<Plugin> LoadPlugin(const std::string& path, CompilerAnswer& answer) {
  TWIN_ASSIGN_OR_RETURN(const PJRT_Api* const api, LoadApi(path));
  TWIN_RETURN_IF_ERROR(CheckVersion(*api, answer));
  const Plugin plugin(*api);
  TWIN_RETURN_IF_ERROR(plugin.CheckTable());
  TWIN_RETURN_IF_ERROR(plugin.Initialize());
  return plugin;
}

absl::Status CompileProgram(const Plugin& plugin, PJRT_TopologyDescription* topology,
                            const PluginQuestion& question, CompilerAnswer& answer) {
  TWIN_ASSIGN_OR_RETURN(PJRT_Executable* const executable,
                        plugin.Compile(topology, question.program, question.compile_options));
  TWIN_RETURN_IF_ERROR(plugin.DescribeMemory(executable, answer));
  return plugin.CopyProgram(executable, answer);
}

}  // namespace

CompilerAnswer AskPlugin(const PluginQuestion& question,
                         const std::function<void(CompilerAnswer::Stage)>& begins) {
  for (const auto& [name, value] : kEnvironment) setenv(name, value, 1);
  CompilerAnswer answer;
  const auto fail = [&](CompilerAnswer::Stage stage, const absl::Status& status) {
    answer.set_stage(stage);
    answer.set_error(std::string(status.message()));
    return answer;
  };
  begins(CompilerAnswer::LOAD);
  const absl::StatusOr<Plugin> plugin = LoadPlugin(question.library, answer);
  if (!plugin.ok()) return fail(CompilerAnswer::LOAD, plugin.status());
  begins(CompilerAnswer::TOPOLOGY);
  const absl::StatusOr<PJRT_TopologyDescription*> topology = plugin->MakeTopology(question.topology);
  if (!topology.ok()) return fail(CompilerAnswer::TOPOLOGY, topology.status());
  if (const absl::Status status = plugin->DescribeTopology(*topology, answer); !status.ok())
    return fail(CompilerAnswer::TOPOLOGY, status);
  begins(CompilerAnswer::COMPILE);
  const absl::Status status = CompileProgram(*plugin, *topology, question, answer);
  if (!status.ok()) return fail(CompilerAnswer::COMPILE, status);
  answer.set_stage(CompilerAnswer::DONE);
  return answer;
}

}  // namespace twinforge
