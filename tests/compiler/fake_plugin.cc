// A PJRT plugin that does as the program's text says: "refuse", "abort", "hang", "answer BYTES", ...; what is
// wrong with the library itself is said by $FAKE_PLUGIN.
#include <pjrt/pjrt_c_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

struct PJRT_Error {
  std::string message;
};
struct PJRT_TopologyDescription {
  std::string name;
};
struct PJRT_Executable {
  std::string program;
  int reads = 0;
};

namespace {

constexpr char kVersion[] = "fake plugin 1";

bool Is(const char* what) {
  const char* const how = std::getenv("FAKE_PLUGIN");
  return how != nullptr && std::strcmp(how, what) == 0;
}

PJRT_Error* Fail(std::string message) { return new PJRT_Error{std::move(message)}; }

void Destroy(PJRT_Error_Destroy_Args* args) { delete args->error; }

void Message(PJRT_Error_Message_Args* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

PJRT_Error* Initialize(PJRT_Plugin_Initialize_Args*) {
  if (Is("crash early")) std::abort();
  return Is("no start") ? Fail("it will not start") : nullptr;
}

PJRT_Error* CreateTopology(PJRT_TopologyDescription_Create_Args* args) {
  if (Is("no topology")) return Fail("what is that topology?");
  if (Is("null topology")) return nullptr;
  args->topology = new PJRT_TopologyDescription{std::string(args->topology_name, args->topology_name_size)};
  for (size_t i = 0; i < args->num_options; ++i)
    args->topology->name +=
        " " + std::string(args->create_options[i].name, args->create_options[i].name_size);
  return nullptr;
}

PJRT_Error* PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args* args) {
  static std::string text;
  text = std::string(kVersion) + " " + args->topology->name;
  args->platform_version = text.data();
  args->platform_version_size = text.size();
  return nullptr;
}

PJRT_Error* Devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) {
  args->num_descriptions = 4;
  return nullptr;
}

PJRT_Error* Compile(PJRT_Compile_Args* args) {
  const std::string program(args->program->code, args->program->code_size);
  const auto begins = [&](const char* word) { return program.compare(0, std::strlen(word), word) == 0; };
  if (begins("refuse")) return Fail(program.substr(6));
  if (begins("silent")) return Fail("");
  if (begins("abort")) {
    std::fputs("F0000 a check of the compiler failed\n", stderr);
    std::abort();
  }
  if (begins("exit")) std::_Exit(3);
  if (begins("hang")) {
    for (;;) pause();
  }
  if (begins("nothing")) return nullptr;
  args->executable = new PJRT_Executable{program};
  return nullptr;
}

PJRT_Error* Memory(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  args->argument_size_in_bytes = args->executable->program == "negative" ? -1 : 4096;
  args->temp_size_in_bytes = 512;
  return nullptr;
}

PJRT_Error* Optimized(PJRT_Executable_OptimizedProgram_Args* args) {
  PJRT_Executable& executable = *args->executable;
  const bool other = executable.program == "other format";
  args->program->format = other ? "mlir" : "hlo_with_config";
  args->program->format_size = other ? 4 : 15;
  const std::string bytes =
      executable.program.compare(0, 7, "answer ") == 0 ? executable.program.substr(7) : "";
  args->program->code_size = executable.program == "huge" ? size_t{1} << 40 : bytes.size();
  if (executable.program == "grows") args->program->code_size += static_cast<size_t>(executable.reads++);
  if (args->program->code != nullptr) std::memcpy(args->program->code, bytes.data(), bytes.size());
  return nullptr;
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api;
  if (Is("nothing")) return nullptr;
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  if (Is("short")) api.struct_size = 16;
  if (Is("half")) api.struct_size = offsetof(PJRT_Api, PJRT_Compile);
  api.pjrt_api_version.major_version = Is("major") ? 1 : 0;
  api.pjrt_api_version.minor_version = Is("old") ? 12 : 112;
  api.PJRT_Error_Destroy = Destroy;
  api.PJRT_Error_Message = Message;
  api.PJRT_Plugin_Initialize = Initialize;
  api.PJRT_TopologyDescription_Create = CreateTopology;
  api.PJRT_TopologyDescription_PlatformVersion = PlatformVersion;
  api.PJRT_TopologyDescription_GetDeviceDescriptions = Devices;
  api.PJRT_Compile = Is("null") ? nullptr : Compile;
  api.PJRT_Executable_GetCompiledMemoryStats = Memory;
  api.PJRT_Executable_OptimizedProgram = Optimized;
  return &api;
}
