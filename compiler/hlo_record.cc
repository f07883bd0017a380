#include "compiler/hlo_record.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "compiler/hlo_layout.h"
#include "compiler/xla.pb.h"

namespace twinforge {
namespace {

constexpr int64_t kMostCycles = int64_t{1} << 50;  // of one op: eleven days at a gigahertz
constexpr int kMostArguments = 1 << 16;

absl::Status BadProgram(absl::string_view why) {
  return Error(2106, "the compiler's answer", why,
               "this version of the compiler may write another form; libtpu 0.0.42.1 was read");
}

// Ops that take no time of their own, or whose time is that of the op that they end.
bool IsIdle(absl::string_view opcode) {
  for (const absl::string_view idle : {"parameter", "constant", "bitcast", "tuple", "get-tuple-element",
                                       "after-all", "partition-id", "opt-barrier", "add-dependency"})
    if (opcode == idle) return true;
  return absl::EndsWith(opcode, "-done");
}

// "all-reduce" of "all-reduce" and "all-reduce-start"; "" of what is no collective, and of its end.
absl::string_view CollectiveKind(absl::string_view opcode) {
  for (const absl::string_view kind : {"all-reduce", "all-gather", "reduce-scatter", "all-to-all",
                                       "collective-permute", "collective-broadcast", "ragged-all-to-all"}) {
    if (opcode == kind || opcode == absl::StrCat(kind, "-start")) return kind;
  }
  return "";
}

bool IsCopy(absl::string_view opcode) { return opcode == "copy" || opcode == "copy-start"; }

// A program with its computations and instructions by number.
class Program {
 public:
  static absl::StatusOr<Program> Parse(absl::string_view bytes) {
    Program program;
    xla::HloModuleWithConfig whole;
    if (bytes.size() > INT32_MAX || !whole.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      return BadProgram("the optimised program is no message that can be read");
    program.module_ = std::move(*whole.mutable_hlo_module());
    for (const xla::HloComputation& computation : program.module_.computations()) {
      if (!program.computations_.emplace(computation.id(), &computation).second)
        return BadProgram("two computations of the program have one number");
      for (const xla::HloInstruction& instruction : computation.instructions()) {
        if (!program.instructions_.emplace(instruction.id(), &instruction).second)
          return BadProgram("two instructions of the program have one number");
      }
    }
    program.entry_ = program.Computation(program.module_.entry_computation_id());
    if (program.entry_ == nullptr) return BadProgram("the program has no entry");
    return program;
  }

  Program(Program&&) = default;
  Program& operator=(Program&&) = delete;

  const xla::HloComputation& entry() const { return *entry_; }
  const xla::HloComputation* Computation(int64_t id) const {
    const auto found = computations_.find(id);
    return found == computations_.end() ? nullptr : found->second;
  }
  const xla::HloInstruction* Instruction(int64_t id) const {
    const auto found = instructions_.find(id);
    return found == instructions_.end() ? nullptr : found->second;
  }

  // All computations that the entry reaches, each once.
  std::vector<const xla::HloComputation*> Reached() const {
    std::vector<const xla::HloComputation*> reached = {entry_};
    absl::flat_hash_set<const xla::HloComputation*> seen = {entry_};
    for (size_t i = 0; i < reached.size(); ++i) {
      for (const xla::HloInstruction& instruction : reached[i]->instructions()) {
        for (const int64_t id : instruction.called_computation_ids()) {
          const xla::HloComputation* const called = Computation(id);
          if (called != nullptr && seen.insert(called).second) reached.push_back(called);
        }
      }
    }
    return reached;
  }

 private:
  Program() = default;

  xla::HloModule module_;
  absl::flat_hash_map<int64_t, const xla::HloComputation*> computations_;
  absl::flat_hash_map<int64_t, const xla::HloInstruction*> instructions_;
  const xla::HloComputation* entry_ = nullptr;
};

// The estimate in an instruction's backend config; empty: it carries none.
absl::StatusOr<std::optional<int64_t>> EstimatedCycles(const xla::HloInstruction& instruction) {
  if (!absl::StrContains(instruction.backend_config(), "estimated_cycles")) return std::optional<int64_t>();
  const absl::StatusOr<JsonValue> config = ParseJson(instruction.backend_config(), "a backend config");
  if (!config.ok()) return BadProgram("a backend config of the program is no JSON");
  const JsonValue* const cycles = config->FindPath("window_config.estimated_cycles");
  if (cycles == nullptr) return std::optional<int64_t>();
  int64_t number = -1;
  if (cycles->kind() == JsonValue::Kind::kInteger) number = cycles->as_integer();
  if (cycles->kind() == JsonValue::Kind::kString && !absl::SimpleAtoi(cycles->as_string(), &number))
    number = -1;
  if (number < 0 || number > kMostCycles)
    return BadProgram("an op's estimated cycles are no number of cycles");
  return std::optional<int64_t>(number);
}

// The first array of a shape: itself, or of a tuple its first element.
const xla::Shape& FirstArray(const xla::Shape& shape) {
  const xla::Shape* at = &shape;
  while (at->tuple_shapes_size() > 0) at = &at->tuple_shapes(0);
  return *at;
}

class Reader {
 public:
  Reader(const Program& program, const ArgumentNotes& notes) : program_(program), notes_(notes) {}

  absl::StatusOr<CompiledModule> Read() {
    TWIN_RETURN_IF_ERROR(ReadArguments());
    TWIN_RETURN_IF_ERROR(ReadResults());
    for (const xla::HloInstruction& instruction : program_.entry().instructions()) {
      TWIN_RETURN_IF_ERROR(ReadInstruction(instruction));
    }
    for (const auto& [opcode, count] : uncounted_) {
      UncountedOps& ops = *module_.add_uncounted();
      ops.set_opcode(opcode);
      ops.set_count(count);
    }
    TWIN_RETURN_IF_ERROR(ReadCollectives());
    return std::move(module_);
  }

 private:
  std::string ArgumentName(int64_t number) const {
    const size_t at = static_cast<size_t>(number);
    return at < notes_.names.size() ? notes_.names[at] : absl::StrCat("argument ", number);
  }

  absl::Status AddArray(const std::string& name, const xla::Shape& shape,
                        google::protobuf::RepeatedPtrField<CompiledArray>& arrays) const {
    TWIN_ASSIGN_OR_RETURN(const HloArray read, ReadHloArray(shape));
    CompiledArray& array = *arrays.Add();
    array.set_name(name);
    array.set_shape(read.shape);
    array.set_layout(read.layout);
    array.set_bytes(read.bytes);
    array.set_padded_bytes(read.padded_bytes);
    if (notes_.padded) array.set_predicted_bytes(std::max<int64_t>(0, notes_.padded(read.bits, read.dims)));
    return absl::OkStatus();
  }

  absl::Status ReadArguments() {
    std::map<int64_t, const xla::HloInstruction*> parameters;
    for (const xla::HloInstruction& instruction : program_.entry().instructions()) {
      if (instruction.opcode() != "parameter") continue;
      if (!parameters.emplace(instruction.parameter_number(), &instruction).second)
        return BadProgram("two arguments of the program have one number");
    }
    if (parameters.size() > kMostArguments) return BadProgram("the program has too many arguments");
    int64_t next = 0;
    for (const auto& [number, parameter] : parameters) {
      if (number != next++) return BadProgram("the program's arguments are not numbered from 0");
      TWIN_RETURN_IF_ERROR(AddArray(ArgumentName(number), parameter->shape(), *module_.mutable_arguments()));
    }
    return absl::OkStatus();
  }

  absl::Status ReadResults() {
    const xla::HloInstruction* const root = program_.Instruction(program_.entry().root_id());
    if (root == nullptr) return BadProgram("the program has no result");
    if (root->shape().element_type() != kTuple)
      return AddArray("result 0", root->shape(), *module_.mutable_results());
    int number = 0;
    for (const xla::Shape& shape : root->shape().tuple_shapes()) {
      TWIN_RETURN_IF_ERROR(AddArray(absl::StrCat("result ", number++), shape, *module_.mutable_results()));
    }
    return absl::OkStatus();
  }

  absl::Status ReadInstruction(const xla::HloInstruction& instruction) {
    TWIN_ASSIGN_OR_RETURN(const std::optional<int64_t> cycles, EstimatedCycles(instruction));
    if (cycles) {
      int64_t sum = 0;
      if (__builtin_add_overflow(module_.cycles(), *cycles, &sum))
        return BadProgram("its cycles have no sum");
      module_.set_cycles(sum);
    } else if (!IsIdle(instruction.opcode())) {
      std::string opcode = instruction.opcode();
      if (!instruction.custom_call_target().empty())
        absl::StrAppend(&opcode, " ", instruction.custom_call_target());
      ++uncounted_[opcode];
    }
    return ReadCopy(instruction, cycles.value_or(0));
  }

  // What a computation does to the bytes that it is given.
  enum class Does : uint8_t { kNothing, kLaysAnew, kWork };

  static Does Most(Does a, Does b) { return a > b ? a : b; }

  // Each computation is looked at once; one that calls itself is work.
  Does DoesOf(int64_t computation) {
    const auto [known, is_new] = does_.emplace(computation, Does::kWork);
    if (!is_new) return known->second;
    const xla::HloComputation* const body = program_.Computation(computation);
    if (body == nullptr) return Does::kWork;
    Does does = Does::kNothing;
    for (const xla::HloInstruction& op : body->instructions()) does = Most(does, DoesOf(op));
    return does_[computation] = does;
  }

  Does DoesOf(const xla::HloInstruction& op) {
    const std::string& code = op.opcode();
    if (code == "parameter" || code == "bitcast") return Does::kNothing;
    if (code == "copy" || code == "transpose" || code == "reshape") return Does::kLaysAnew;
    if (code != "fusion" || op.called_computation_ids_size() != 1) return Does::kWork;
    return DoesOf(op.called_computation_ids(0));
  }

  // The argument whose bytes an instruction's first operand is; null: it was computed.
  const xla::HloInstruction* ArgumentOf(const xla::HloInstruction& instruction) const {
    const xla::HloInstruction* at = &instruction;
    for (int steps = 0; steps < 32 && at->operand_ids_size() > 0; ++steps) {
      at = program_.Instruction(at->operand_ids(0));
      if (at == nullptr) return nullptr;
      if (at->opcode() == "parameter") return at;
      if (at->opcode() != "bitcast" && at->opcode() != "copy-done" && at->opcode() != "copy-start")
        return nullptr;
    }
    return nullptr;
  }

  absl::Status ReadCopy(const xla::HloInstruction& instruction, int64_t cycles) {
    const bool fused = instruction.opcode() == "fusion" && DoesOf(instruction) == Does::kLaysAnew;
    if (!fused && !IsCopy(instruction.opcode())) return absl::OkStatus();
    if (instruction.operand_ids_size() == 0) return BadProgram("a copy of the program copies nothing");
    const xla::HloInstruction* const operand = program_.Instruction(instruction.operand_ids(0));
    if (operand == nullptr) return BadProgram("a copy of the program copies nothing");
    TWIN_ASSIGN_OR_RETURN(const HloArray from, ReadHloArray(FirstArray(operand->shape())));
    TWIN_ASSIGN_OR_RETURN(const HloArray to, ReadHloArray(FirstArray(instruction.shape())));
    if (from.memory != to.memory && !fused) {
      module_.set_moves(module_.moves() + 1);
      return absl::OkStatus();
    }
    CompiledCopy& copy = *module_.add_copies();
    copy.set_name(instruction.name());
    copy.set_shape(to.shape);
    copy.set_from(from.shape == to.shape ? from.layout : absl::StrCat(from.shape, from.layout));
    copy.set_to(to.layout);
    if (const xla::HloInstruction* const argument = ArgumentOf(instruction); argument != nullptr)
      copy.set_of(ArgumentName(argument->parameter_number()));
    copy.set_bytes(to.bytes);
    copy.set_cycles(cycles);
    module_.set_copy_cycles(module_.copy_cycles() + cycles);  // no more than all cycles
    return absl::OkStatus();
  }

  // Devices along the axes that a group takes; 0: an axis that the mesh does not have.
  static int64_t GroupOfAxes(const xla::MeshGroups& groups) {
    int64_t devices = 1;
    for (const xla::MeshGroups::AxisRef& axis : groups.axes()) {
      const int64_t index = axis.mesh_axis_index();
      if (index < 0 || index >= groups.mesh().axes_size()) return 0;
      const int64_t size = axis.has_sub_axis_info() ? axis.sub_axis_info().size()
                                                    : groups.mesh().axes(static_cast<int>(index)).size();
      if (size < 1 || __builtin_mul_overflow(devices, size, &devices)) return 0;
    }
    return devices;
  }

  // Devices of one group, in whichever of four forms the compiler says it.
  static int64_t GroupOf(const xla::HloInstruction& instruction) {
    const xla::CollectiveDeviceList& list = instruction.collective_device_list();
    if (instruction.mesh_axes_replica_group_list().axes_size() > 0)
      return GroupOfAxes(instruction.mesh_axes_replica_group_list());
    for (const xla::IotaGroups* const iota :
         {&instruction.iota_collective_device_list(), &list.iota_replica_group_list()})
      if (iota->num_devices_per_group() > 0) return iota->num_devices_per_group();
    if (list.replica_groups_size() > 0) return list.replica_groups(0).replica_ids_size();
    if (instruction.replica_groups_size() > 0) return instruction.replica_groups(0).replica_ids_size();
    return 0;
  }

  // Bytes that each device has of the result. What starts an exchange gives a tuple of operand and result.
  static absl::StatusOr<int64_t> CollectiveBytes(const xla::HloInstruction& instruction) {
    const xla::Shape* shape = &instruction.shape();
    if (absl::EndsWith(instruction.opcode(), "-start") && shape->tuple_shapes_size() >= 2)
      shape = &shape->tuple_shapes(1);
    if (shape->element_type() != kTuple) {
      TWIN_ASSIGN_OR_RETURN(const HloArray array, ReadHloArray(*shape));
      return array.bytes;
    }
    int64_t bytes = 0;
    for (const xla::Shape& part : shape->tuple_shapes()) {
      TWIN_ASSIGN_OR_RETURN(const HloArray array, ReadHloArray(FirstArray(part)));
      if (__builtin_add_overflow(bytes, array.bytes, &bytes))
        return BadProgram("its collectives have no size");
    }
    return bytes;
  }

  absl::Status ReadCollectives() {
    std::map<std::pair<std::string, int64_t>, std::pair<int64_t, int64_t>>
        found;  // kind, group: count, bytes
    for (const xla::HloComputation* const computation : program_.Reached()) {
      for (const xla::HloInstruction& instruction : computation->instructions()) {
        const absl::string_view kind = CollectiveKind(instruction.opcode());
        if (kind.empty()) continue;
        TWIN_ASSIGN_OR_RETURN(const int64_t bytes, CollectiveBytes(instruction));
        auto& [count, sum] = found[{std::string(kind), GroupOf(instruction)}];
        ++count;
        if (__builtin_add_overflow(sum, bytes, &sum)) return BadProgram("its collectives have no size");
      }
    }
    for (const auto& [what, amount] : found) {
      CompiledCollective& collective = *module_.add_collectives();
      collective.set_kind(what.first);
      collective.set_group(what.second);
      collective.set_count(amount.first);
      collective.set_bytes(amount.second);
    }
    return absl::OkStatus();
  }

  static constexpr int32_t kTuple = 13;  // PrimitiveType

  const Program& program_;
  const ArgumentNotes& notes_;
  CompiledModule module_;
  std::map<std::string, int64_t> uncounted_;
  std::map<int64_t, Does> does_;  // by the number of the computation
};

}  // namespace

absl::StatusOr<CompiledModule> ReadOptimizedProgram(absl::string_view bytes, const ArgumentNotes& notes) {
  TWIN_ASSIGN_OR_RETURN(const Program program, Program::Parse(bytes));
  return Reader(program, notes).Read();
}

absl::StatusOr<CompiledModule> ReadAnswer(const CompilerAnswer& answer, const ArgumentNotes& notes) {
  CompiledModule module;
  if (answer.stage() != CompilerAnswer::DONE) {
    module.set_error(answer.error().empty() ? "the compiler refuses and says nothing" : answer.error());
    return module;
  }
  TWIN_ASSIGN_OR_RETURN(module, ReadOptimizedProgram(answer.optimized_program(), notes));
  for (const int64_t bytes : {answer.argument_bytes(), answer.output_bytes(), answer.alias_bytes(),
                              answer.temp_bytes(), answer.generated_code_bytes()})
    if (bytes < 0) return BadProgram("the program takes less than no memory");
  module.set_argument_bytes(answer.argument_bytes());
  module.set_output_bytes(answer.output_bytes());
  module.set_alias_bytes(answer.alias_bytes());
  module.set_temp_bytes(answer.temp_bytes());
  module.set_generated_code_bytes(answer.generated_code_bytes());
  return module;
}

}  // namespace twinforge
