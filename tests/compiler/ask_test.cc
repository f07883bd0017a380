// Whatever the library does, the caller gets an answer or one diagnostic.
#include "compiler/ask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "compiler/apart.h"
#include "compiler/hlo_record.h"
#include "compiler/xla.pb.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

class FakePlugin : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("FAKE_PLUGIN"); }

  static absl::StatusOr<CompilerAnswer> Ask(const std::string& program, const std::string& how = "",
                                            const std::string& topology = "v6e:2x2") {
    setenv("FAKE_PLUGIN", how.c_str(), 1);
    return AskCompiler({.library = *FindCompilerLibrary(TWINFORGE_FAKE_PLUGIN),
                        .topology = *ParseTopology(topology),
                        .program = program,
                        .seconds = 2});
  }

  static void Refused(const absl::StatusOr<CompilerAnswer>& answer, int code, const std::string& words) {
    ASSERT_FALSE(answer.ok());
    const std::optional<Diagnostic> d = DiagnosticOf(answer.status());
    ASSERT_TRUE(d.has_value()) << answer.status();
    EXPECT_EQ(d->code, code);
    EXPECT_THAT(d->message, HasSubstr(words));
  }

  // The compiler says no to this program.
  static void SaysNo(const std::string& program, const std::string& words) {
    const absl::StatusOr<CompilerAnswer> answer = Ask(program);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->stage(), CompilerAnswer::COMPILE) << program;
    EXPECT_THAT(answer->error(), HasSubstr(words)) << program;
    const absl::StatusOr<CompiledModule> module = ReadAnswer(*answer, {});
    ASSERT_TRUE(module.ok());
    EXPECT_THAT(module->error(), HasSubstr(words));
  }
};

TEST_F(FakePlugin, GivesProgramAndMemory) {
  xla::HloModuleWithConfig program;
  xla::HloModule& module = *program.mutable_hlo_module();
  module.set_entry_computation_id(1);
  xla::HloComputation& entry = *module.add_computations();
  entry.set_id(1);
  entry.set_root_id(5);
  xla::HloInstruction& root = *entry.add_instructions();
  root.set_id(5);
  root.set_opcode("parameter");
  root.mutable_shape()->set_element_type(11);
  root.mutable_shape()->add_dimensions(1024);
  const absl::StatusOr<CompilerAnswer> answer = Ask(absl::StrCat("answer ", program.SerializeAsString()));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->stage(), CompilerAnswer::DONE);
  EXPECT_EQ(answer->interface_minor(), 112);
  EXPECT_EQ(answer->topology_devices(), 4);
  const absl::StatusOr<CompiledModule> read = ReadAnswer(*answer, {});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->argument_bytes(), 4096);
  EXPECT_EQ(read->temp_bytes(), 512);
  EXPECT_EQ(read->arguments(0).shape(), "f32[1024]");
}

TEST_F(FakePlugin, TellsTheLibraryWhatATopologyNeeds) {
  EXPECT_EQ(Ask("answer ", "", "v6e:2x2")->platform_version(), "fake plugin 1 v6e:2x2");
  EXPECT_EQ(Ask("answer ", "", "v6e:1x1")->platform_version(), "fake plugin 1 v6e:1x1 chips_per_host_bounds");
  EXPECT_EQ(Ask("answer ", "", "v4:2x2x1")->platform_version(), "fake plugin 1 v4:2x2x1 chip_config_name");
}

TEST_F(FakePlugin, ItsRefusalsAndCrashesAreAnswers) {
  SaysNo("refuse: no such op", ": no such op");
  SaysNo("silent", "an error without a message");
  SaysNo("abort", "SIGABRT");
  SaysNo("abort", "a check of the compiler failed");
  SaysNo("exit", "ended itself with status 3");
  SaysNo("nothing", "made no program");
  SaysNo("other format", "not hlo_with_config");
  SaysNo("huge", "has 1099511627776 bytes");
  SaysNo("grows", "changed its size");
}

TEST_F(FakePlugin, IsStoppedWhenItHangs) { Refused(Ask("hang"), 2104, "took more than 2 seconds"); }

TEST_F(FakePlugin, IsCheckedBeforeItIsCalled) {
  Refused(Ask("", "nothing"), 2102, "gives nothing");
  Refused(Ask("", "short"), 2102, "too short");
  Refused(Ask("", "half"), 2102, "lacks one");
  Refused(Ask("", "null"), 2102, "lacks one");
  Refused(Ask("", "old"), 2102, "speaks PJRT 0.12");
  Refused(Ask("", "major"), 2102, "speaks PJRT 1.112");
  Refused(Ask("", "no start"), 2102, "will not start");
  Refused(Ask("", "crash early"), 2102, "SIGABRT");
}

TEST_F(FakePlugin, TopologyIsItsToJudge) {
  Refused(Ask("", "no topology"), 2103, "what is that topology?");
  Refused(Ask("", "null topology"), 2103, "made no topology");
  Refused(Ask("module attributes {mhlo.num_partitions = 8 : i32}"), 2103, "has 4 devices");
}

TEST_F(FakePlugin, MemoryBelowNothingIsNotTaken) {
  const absl::StatusOr<CompilerAnswer> answer = Ask("negative");
  ASSERT_TRUE(answer.ok());
  const absl::StatusOr<CompiledModule> module = ReadAnswer(*answer, {});
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(DiagnosticOf(module.status())->code, 2106);
}

TEST(Library, IsNamedOrFound) {
  const std::string root = testing::TempDir() + "/venv";
  const std::string packages = root + "/lib/python3.11/site-packages";
  ASSERT_EQ(std::system(("mkdir -p " + packages + "/libtpu " + packages + "/libtpu-9.8.7.dist-info").c_str()),
            0);
  std::ofstream(packages + "/libtpu/libtpu.so") << "no library";
  unsetenv("TWINFORGE_LIBTPU");
  setenv("VIRTUAL_ENV", root.c_str(), 1);
  const absl::StatusOr<CompilerLibrary> found = FindCompilerLibrary("");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->version, "libtpu 9.8.7");
  EXPECT_EQ(FindCompilerLibrary(packages + "/libtpu")->path, packages + "/libtpu/libtpu.so");
  const absl::StatusOr<CompilerAnswer> answer =
      AskCompiler({.library = *found, .topology = *ParseTopology("v5e:2x2"), .program = ""});
  EXPECT_EQ(DiagnosticOf(answer.status())->code, 2102);
  const absl::Status missing = FindCompilerLibrary(root + "/nowhere.so").status();
  EXPECT_EQ(DiagnosticOf(missing)->code, 2101);
  EXPECT_THAT(DiagnosticOf(missing)->hint, HasSubstr("pip install libtpu"));
  EXPECT_EQ(ExitCodeOf(missing), ExitCode::kUnsupported);
}

TEST(Apart, HandsOverWhatWasWritten) {
  const std::string big(3 << 20, 'x');
  const absl::StatusOr<ApartEnd> end = RunApart([&](const ApartWriter& write) { write(big); }, 10);
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->finished);
  EXPECT_EQ(end->written, big);
}

TEST(Apart, SaysThatTheSystemGivesNothing) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = RunApart([](const ApartWriter&) {}, 2).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  ASSERT_TRUE(d.has_value()) << status;
  EXPECT_EQ(d->code, 2105);
  EXPECT_THAT(d->message, HasSubstr("no buffer"));
}

TEST(Apart, KeepsTheEndOfWhatWasSaid) {
  const absl::StatusOr<ApartEnd> end = RunApart(
      [](const ApartWriter&) {
        for (int i = 0; i < 10000; ++i) std::fprintf(stderr, "line %d\n", i);
      },
      10);
  ASSERT_TRUE(end.ok());
  EXPECT_LE(end->said.size(), 4u << 10);
  EXPECT_THAT(end->said, HasSubstr("line 9999\n"));
}

}  // namespace
}  // namespace twinforge
