#include "compiler/record_check.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "compiler/topology.h"

namespace twinforge {
namespace {

constexpr int64_t kMost = int64_t{1} << 56;       // of any figure: sums of 64 of them fit
constexpr int64_t kMostBytesPerCycle = 16 << 10;  // several times what any chip's memory gives
constexpr int64_t kAlignment = 1024;              // from which the compiler lets an argument begin
constexpr int64_t kMostModules = 4096, kMostRows = 1 << 16;

using Named = std::pair<absl::string_view, int64_t>;

// Checks of one part, which its messages name.
class PartCheck {
 public:
  PartCheck(const std::string& place, const std::string& part)
      : place_(part.empty() ? place : absl::StrCat(place, ": ", part)) {}

  absl::Status Cannot(absl::string_view why) const {
    return Error(2111, place_, why, "compile it anew: `twinforge compile`");
  }
  absl::Status NotNegative(std::initializer_list<Named> figures) const {
    for (const auto& [name, value] : figures) {
      if (value < 0) return Cannot(absl::StrCat(name, " is ", value));
      if (value > kMost) return Cannot(absl::StrCat(name, " is beyond 2^56"));
    }
    return absl::OkStatus();
  }
  absl::Status AtLeastOne(std::initializer_list<Named> figures) const {
    TWIN_RETURN_IF_ERROR(NotNegative(figures));
    for (const auto& [name, value] : figures)
      if (value == 0) return Cannot(absl::StrCat(name, " is 0"));
    return absl::OkStatus();
  }
  absl::Status Hash(absl::string_view name, absl::string_view hash) const {
    const bool digits = std::all_of(hash.begin(), hash.end(), [](char c) {
      return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
    });
    return hash.size() == 64 && digits ? absl::OkStatus() : Cannot(absl::StrCat(name, " is no SHA-256"));
  }

 private:
  std::string place_;
};

// A list is as long as the lists of real programs are, or it is no list of ours.
absl::Status CheckLengths(const CompiledModule& module, const PartCheck& check) {
  for (const int rows : {module.arguments_size(), module.results_size(), module.copies_size(),
                         module.collectives_size(), module.uncounted_size()})
    if (rows > kMostRows) return check.Cannot("a list has more than 65,536 rows");
  return absl::OkStatus();
}

absl::Status CheckArguments(const CompiledModule& module, const PartCheck& check) {
  int64_t padded = 0;
  for (const auto* arrays : {&module.arguments(), &module.results()}) {
    for (const CompiledArray& array : *arrays) {
      TWIN_RETURN_IF_ERROR(check.NotNegative({{"bytes", array.bytes()},
                                              {"padded_bytes", array.padded_bytes()},
                                              {"predicted_bytes", array.predicted_bytes()}}));
      if (array.padded_bytes() < array.bytes())
        return check.Cannot(absl::StrCat(JsonQuoted(array.name(), 100), " has fewer bytes padded than bare"));
      if (arrays == &module.arguments()) padded += array.padded_bytes();
    }
    if (padded > kMost) return check.Cannot("its arguments are beyond 2^56 bytes");
  }
  const int64_t most = padded + kAlignment * module.arguments_size();
  if (module.argument_bytes() < padded || module.argument_bytes() > most) {
    return check.Cannot(
        absl::StrCat("argument_bytes is ", module.argument_bytes(), ", and its arguments take ", padded));
  }
  return absl::OkStatus();
}

absl::Status CheckCopies(const CompiledModule& module, const PartCheck& check) {
  int64_t cycles = 0;
  for (const CompiledCopy& copy : module.copies()) {
    TWIN_RETURN_IF_ERROR(check.NotNegative({{"bytes", copy.bytes()}, {"cycles", copy.cycles()}}));
    cycles += std::min(copy.cycles(), kMost / kMostRows);
  }
  if (cycles != module.copy_cycles())
    return check.Cannot(
        absl::StrCat("copy_cycles is ", module.copy_cycles(), ", and its copies have ", cycles));
  if (module.copy_cycles() > module.cycles())
    return check.Cannot(absl::StrCat("its copies have ", cycles, " of ", module.cycles(), " cycles"));
  return absl::OkStatus();
}

absl::Status CheckOps(const CompiledModule& module, const PartCheck& check) {
  for (const CompiledCollective& one : module.collectives()) {
    TWIN_RETURN_IF_ERROR(check.AtLeastOne({{"count", one.count()}}));
    TWIN_RETURN_IF_ERROR(check.NotNegative({{"bytes", one.bytes()}, {"group", one.group()}}));
    if (one.group() > module.partitions() || module.partitions() < 2)
      return check.Cannot(absl::StrCat("a collective of ", one.group(), " devices, and the program is of ",
                                       module.partitions()));
  }
  for (const UncountedOps& ops : module.uncounted())
    TWIN_RETURN_IF_ERROR(check.AtLeastOne({{"count", ops.count()}}));
  return absl::OkStatus();
}

// A layer reads all its weights, where no loop or kernel does so uncounted.
absl::Status CheckCycles(const CompiledModule& module, const PartCheck& check) {
  if (!absl::StartsWith(module.kind(), "layers")) return absl::OkStatus();
  for (const UncountedOps& ops : module.uncounted())
    for (const absl::string_view opaque : {"while", "custom-call", "conditional", "call"})
      if (absl::StartsWith(ops.opcode(), opaque)) return absl::OkStatus();
  int64_t weights = 0;
  for (const CompiledArray& array : module.arguments())
    if (array.kind() == "weight") weights += array.bytes();
  if (weights / kMostBytesPerCycle <= module.cycles()) return absl::OkStatus();
  return check.Cannot(
      absl::StrCat(module.cycles(), " cycles are too few to read ", weights, " bytes of weights"));
}

absl::Status CheckModule(const CompiledModule& module, const PartCheck& check) {
  TWIN_RETURN_IF_ERROR(check.AtLeastOne({{"count", module.count()}, {"partitions", module.partitions()}}));
  TWIN_RETURN_IF_ERROR(check.Hash("program_sha256", module.program_sha256()));
  TWIN_RETURN_IF_ERROR(check.NotNegative({{"cycles", module.cycles()},
                                          {"argument_bytes", module.argument_bytes()},
                                          {"output_bytes", module.output_bytes()},
                                          {"alias_bytes", module.alias_bytes()},
                                          {"temp_bytes", module.temp_bytes()},
                                          {"generated_code_bytes", module.generated_code_bytes()},
                                          {"copy_cycles", module.copy_cycles()},
                                          {"moves", module.moves()}}));
  TWIN_RETURN_IF_ERROR(CheckLengths(module, check));
  if (!module.error().empty()) {
    if (module.cycles() != 0 || module.arguments_size() != 0)
      return check.Cannot("the compiler refused it, and it has figures");
    return absl::OkStatus();
  }
  if (module.alias_bytes() > std::min(module.argument_bytes(), module.output_bytes()))
    return check.Cannot("alias_bytes exceeds what there is of arguments or results");
  TWIN_RETURN_IF_ERROR(CheckArguments(module, check));
  TWIN_RETURN_IF_ERROR(CheckCopies(module, check));
  TWIN_RETURN_IF_ERROR(CheckOps(module, check));
  return CheckCycles(module, check);
}

absl::Status CheckSide(const CompiledModel& model, const CompileRecord& record, const std::string& place) {
  if (model.modules_size() > kMostModules) return PartCheck(place, "").Cannot("has more than 4,096 parts");
  std::set<absl::string_view> kinds;
  for (const CompiledModule& module : model.modules()) {
    const PartCheck check(place, JsonQuoted(module.kind(), 100));
    TWIN_RETURN_IF_ERROR(CheckModule(module, check));
    if (module.partitions() > record.devices())
      return check.Cannot(absl::StrCat("is split over ", module.partitions(), " devices, and ",
                                       record.devices(), " there are"));
    if (record.phase().empty()) continue;
    if (!kinds.insert(module.kind()).second) return check.Cannot("is there twice");
    if (module.partitions() != record.shards())
      return check.Cannot(absl::StrCat("is split over ", module.partitions(),
                                       " devices, and the record over ", record.shards()));
  }
  const PartCheck check(place, "");
  return record.phase().empty() || !model.refused().empty()
             ? absl::OkStatus()
             : check.Hash("graph_sha256", model.graph_sha256());
}

}  // namespace

absl::Status CheckCompileRecord(const CompileRecord& record, const std::string& place) {
  const PartCheck check(place, "");
  const absl::StatusOr<TpuTopology> topology = ParseTopology(record.topology());
  if (!topology.ok())
    return check.Cannot(absl::StrCat("no topology is ", JsonQuoted(record.topology(), 100)));
  if (topology->chip != record.chip())
    return check.Cannot(absl::StrCat("the topology is of ", topology->chip, ", and the chip ",
                                     JsonQuoted(record.chip(), 100)));
  if (record.devices() != DevicesOf(*topology))
    return check.Cannot(
        absl::StrCat(record.topology(), " has ", DevicesOf(*topology), " devices, not ", record.devices()));
  if (!record.phase().empty())
    TWIN_RETURN_IF_ERROR(check.AtLeastOne(
        {{"batch", record.batch()}, {"context", record.context()}, {"shards", record.shards()}}));
  TWIN_RETURN_IF_ERROR(CheckSide(record.twin(), record, absl::StrCat(place, ": twin")));
  return record.has_source() ? CheckSide(record.source(), record, absl::StrCat(place, ": source"))
                             : absl::OkStatus();
}

}  // namespace twinforge
