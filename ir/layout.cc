#include "ir/layout.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/parallel.h"
#include "base/status_macros.h"
#include "ir/layout_parts.h"
#include "ir/stacks.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using Arrangement = Bundle::Arrangement;

// Below that a thread is not worth its start.
constexpr int64_t kEntriesPerThread = 64, kTensorsPerThread = 256;

std::string ExtentsText(const LayoutPart& part) {
  std::vector<std::string> extents;
  for (const std::vector<std::string>& extent : part.extents) extents.push_back(absl::StrJoin(extent, "*"));
  return absl::StrCat("[", absl::StrJoin(extents, ", "), "]");
}

Shape ProductsOf(const Shape& factored, const std::vector<int>& groups) {
  Shape products;
  size_t at = 0;
  for (int count : groups) {
    int64_t product = 1;
    for (int i = 0; i < count; ++i) product *= factored[at++];
    products.push_back(product);
  }
  return products;
}

// Whether b's parts lie beside a's: the same extents but along the joined axis.
bool LieTogether(const FactoredPart& a, const FactoredPart& b, int64_t join, Arrangement arrangement) {
  if (a.groups != b.groups || join < 0 || join >= static_cast<int64_t>(a.sizes.size())) return false;
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    const bool free = arrangement == Arrangement::kConcat && static_cast<int64_t>(i) == join;
    if (!free && a.sizes[i] != b.sizes[i]) return false;
  }
  return true;
}

std::vector<int64_t> InversePermutation(const std::vector<int64_t>& perm) {
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return inverse;
}

// Part `index` of the joined, factored tensor.
WeightPtr TakePart(const WeightPtr& joined, const LayoutTensor& tensor, const FactoredTensor& factored,
                   size_t index) {
  if (tensor.parts.size() == 1) return joined;
  const int64_t axis = tensor.join_axis;
  const int64_t size = factored.parts[index].sizes[axis];
  if (tensor.arrangement == Arrangement::kInterleave) {
    const auto parts = static_cast<int64_t>(tensor.parts.size());
    return Take(joined, axis, IndexMap::Slice(static_cast<int64_t>(index), size, parts));
  }
  int64_t start = 0;
  for (size_t i = 0; i < index; ++i) start += factored.parts[i].sizes[axis];
  return Slice(joined, axis, start, size);
}

WeightPtr Join(std::vector<WeightPtr> parts, int64_t axis, Arrangement arrangement) {
  if (parts.size() == 1) return parts[0];
  const auto count = static_cast<int64_t>(parts.size());
  const int64_t size = parts[0]->shape()[axis];
  WeightPtr joined = Concat(axis, std::move(parts));
  if (arrangement == Arrangement::kConcat) return joined;
  return Take(joined, axis, IndexMap::Tile(IndexMap::Slice(0, count, size), size, 1));
}

// The program of a tied role: its partner's, axes brought into order by name. Null where the
// two do not have the same axes.
WeightPtr TiedProgram(const ParamType& from, const WeightPtr& program, const ParamType& to) {
  if (from.axes.size() != to.axes.size() || from.dtype != to.dtype) return nullptr;
  std::vector<int64_t> perm;
  for (const ParamAxis& axis : to.axes) {
    const int at = from.Find(axis.name);
    if (at < 0 || from.axes[at].size != axis.size) return nullptr;
    perm.push_back(at);
  }
  return Transpose(program, std::move(perm));
}

std::map<std::string, const ParamType*> Pointers(const std::map<std::string, ParamType>& types) {
  std::map<std::string, const ParamType*> pointers;
  for (const auto& [role, type] : types) pointers.emplace_hint(pointers.end(), role, &type);
  return pointers;
}

}  // namespace

std::string LayoutTensor::NameAt(int64_t i) const {
  return is_run() ? absl::StrCat(name, i, name_end) : name;
}

// ---- arithmetic of parts

absl::StatusOr<FactoredPart> FactorPart(const LayoutPart& part, const ParamType& type) {
  FactoredPart factored;
  if (part.experts > 0) {
    factored.expert_axis = type.Find("expert");
    if (factored.expert_axis < 0 || part.experts != type.axes[factored.expert_axis].size) {
      return Error(
          1503, part.role,
          absl::StrCat("the layout stores ", part.experts, " experts apart, but it is ", Text(type)));
    }
  }
  std::vector<bool> used(type.axes.size(), false);
  for (const std::vector<std::string>& extent : part.extents) {
    factored.groups.push_back(static_cast<int>(extent.size()));
    for (const std::string& name : extent) {
      // A square kernel may have two axes of one name: in its canonical order, first come first served.
      int at = 0;
      const int rank = static_cast<int>(type.axes.size());
      while (at < rank && (used[at] || at == factored.expert_axis || type.axes[at].name != name)) ++at;
      if (at == rank) {
        return Error(1503, part.role,
                     absl::StrCat("stored as ", ExtentsText(part), ", but it is ", Text(type)));
      }
      used[at] = true;
      factored.names.push_back(name);
      factored.sizes.push_back(type.axes[at].size);
      factored.perm.push_back(factored.expert_axis >= 0 && at > factored.expert_axis ? at - 1 : at);
    }
  }
  if (factored.names.size() + (factored.expert_axis >= 0 ? 1 : 0) != type.axes.size()) {
    return Error(1503, part.role, absl::StrCat("stored as ", ExtentsText(part), ", but it is ", Text(type)));
  }
  return factored;
}

absl::StatusOr<FactoredTensor> FactorTensor(const LayoutTensor& tensor,
                                            const std::map<std::string, const ParamType*>& types) {
  FactoredTensor factored;
  for (const LayoutPart& part : tensor.parts) {
    auto type = types.find(part.role);
    if (type == types.end()) return Error(1503, tensor.NameAt(0), absl::StrCat("no type for ", part.role));
    TWIN_ASSIGN_OR_RETURN(FactoredPart one, FactorPart(part, *type->second));
    factored.parts.push_back(std::move(one));
  }
  if (factored.parts.empty()) return Error(1503, tensor.NameAt(0), "the layout gives it no part");
  const FactoredPart& first = factored.parts[0];
  factored.joined = first.sizes;
  for (size_t i = 1; i < factored.parts.size(); ++i) {
    const FactoredPart& part = factored.parts[i];
    if (!LieTogether(first, part, tensor.join_axis, tensor.arrangement)) {
      return Error(1503, tensor.NameAt(0),
                   absl::StrCat(tensor.parts[i].role, " does not lie beside ", tensor.parts[0].role));
    }
    factored.joined[tensor.join_axis] += part.sizes[tensor.join_axis];
  }
  factored.stored = ProductsOf(factored.joined, first.groups);
  return factored;
}

absl::StatusOr<Shape> StoredShape(const LayoutTensor& tensor, const std::map<std::string, ParamType>& types) {
  std::map<std::string, const ParamType*> needed;
  for (const LayoutPart& part : tensor.parts) {
    auto type = types.find(part.role);
    if (type != types.end()) needed[part.role] = &type->second;
  }
  TWIN_ASSIGN_OR_RETURN(const FactoredTensor factored, FactorTensor(tensor, needed));
  return factored.stored;
}

Storage StorageOf(const LayoutPart& part, const ParamType& type) {
  Storage storage;
  storage.per_expert = part.experts > 0;
  if (!type.is_kernel()) return storage;
  absl::StatusOr<FactoredPart> factored = FactorPart(part, type);
  if (!factored.ok()) return storage;
  // [.., in.., out..] exactly when the first in axis comes before the first out axis.
  const int shift = factored->expert_axis >= 0 ? 1 : 0;
  for (int64_t axis : factored->perm) {
    const int64_t canonical = axis + shift;
    if (canonical < type.lead) continue;
    storage.orientation = canonical < type.lead + type.in ? Orientation::kInOut : Orientation::kOutIn;
    break;
  }
  return storage;
}

// ---- from files to roles

namespace {

// One stored tensor's parts in the canonical orientation of their types.
std::vector<WeightPtr> ProgramsOf(const LayoutTensor& tensor, const FactoredTensor& factored,
                                  const WeightPtr& source) {
  TWIN_CHECK(source->shape() == factored.stored,
             absl::StrCat(source->source_name(), ": the shape was not checked"));
  const WeightPtr joined = Reshape(source, factored.joined);
  std::vector<WeightPtr> programs;
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    programs.push_back(
        Transpose(TakePart(joined, tensor, factored, i), InversePermutation(factored.parts[i].perm)));
  }
  return programs;
}

// A whole stack in the canonical orientation of its parameter, whose first axis is `expert`.
WeightPtr ProgramOfStack(const WeightPtr& stack, const FactoredTensor& factored) {
  Shape joined = {stack->shape()[0]};
  joined.insert(joined.end(), factored.joined.begin(), factored.joined.end());
  std::vector<int64_t> perm = {0};
  for (int64_t axis : InversePermutation(factored.parts[0].perm)) perm.push_back(axis + 1);
  return Transpose(Reshape(stack, std::move(joined)), std::move(perm));
}

// The program of a run that is a plain stack; null where it is none.
WeightPtr StackProgram(const LayoutTensor& tensor, const FactoredTensor& factored,
                       const StoredTensors& stored) {
  if (!tensor.is_run() || factored.parts[0].expert_axis != 0) return nullptr;
  const WeightPtr stack = StackOf(tensor, stored);
  return stack == nullptr ? nullptr : ProgramOfStack(stack, factored);
}

// What one entry of a layout gives: whole programs by part, or the slices of a run's experts, [part][expert].
struct EntryPrograms {
  std::vector<WeightPtr> whole;
  std::vector<std::vector<WeightPtr>> slices;
};

EntryPrograms ProgramsOfEntry(const LayoutTensor& tensor,
                              const std::map<std::string, const ParamType*>& types,
                              const StoredTensors& stored) {
  EntryPrograms programs;
  const absl::StatusOr<FactoredTensor> factored = FactorTensor(tensor, types);
  if (!factored.ok()) return programs;  // of a part that this model lacks
  if (WeightPtr stack = StackProgram(tensor, *factored, stored)) {
    programs.whole.push_back(std::move(stack));
    return programs;
  }
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const auto source = stored.find(tensor.NameAt(i));
    std::vector<WeightPtr> parts(tensor.parts.size());
    if (source != stored.end()) parts = ProgramsOf(tensor, *factored, source->second);
    if (!tensor.is_run()) {
      programs.whole = std::move(parts);
      break;
    }
    programs.slices.resize(parts.size());
    for (size_t part = 0; part < parts.size(); ++part)
      programs.slices[part].push_back(std::move(parts[part]));
  }
  return programs;
}

// By place in layout.tensors.
std::vector<EntryPrograms> ProgramsOfEntries(const Layout& layout,
                                             const std::map<std::string, const ParamType*>& types,
                                             const StoredTensors& stored) {
  const auto count = static_cast<int64_t>(layout.tensors.size());
  std::vector<EntryPrograms> programs(count);
  ParallelFor(count, kEntriesPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at)
      programs[at] = ProgramsOfEntry(layout.tensors[at], types, stored);
  });
  return programs;
}

}  // namespace

std::map<std::string, WeightPtr> ProgramsFromFiles(const Layout& layout,
                                                   const std::map<std::string, ParamType>& types,
                                                   const StoredTensors& stored) {
  const std::map<std::string, const ParamType*> pointers = Pointers(types);
  std::map<std::string, WeightPtr> programs;
  std::vector<EntryPrograms> entries = ProgramsOfEntries(layout, pointers, stored);
  for (size_t at = 0; at < entries.size(); ++at) {
    const std::vector<LayoutPart>& parts = layout.tensors[at].parts;
    for (size_t i = 0; i < entries[at].whole.size(); ++i) {
      if (entries[at].whole[i] != nullptr) programs[parts[i].role] = std::move(entries[at].whole[i]);
    }
    for (size_t i = 0; i < entries[at].slices.size(); ++i) {
      std::vector<WeightPtr>& slices = entries[at].slices[i];
      if (std::find(slices.begin(), slices.end(), nullptr) != slices.end()) continue;
      programs[parts[i].role] = Stack(pointers.at(parts[i].role)->Find("expert"), std::move(slices));
    }
  }
  for (const Tie& tie : layout.ties) {
    auto partner = programs.find(tie.to);
    if (!types.contains(tie.role) || programs.contains(tie.role) || partner == programs.end()) continue;
    WeightPtr tied = TiedProgram(types.at(tie.to), partner->second, types.at(tie.role));
    if (tied != nullptr) programs[tie.role] = std::move(tied);
  }
  return programs;
}

// ---- from roles to files

bool IsTied(const Graph& graph, const Tie& tie) {
  const Param* role = graph.FindParam(tie.role);
  const Param* to = graph.FindParam(tie.to);
  return role != nullptr && to != nullptr && TiedProgram(to->type, to->program, role->type) == role->program;
}

namespace {

// The step that last changed the node of `role`.
std::string StepOf(const Graph& graph, absl::string_view role) {
  for (absl::string_view path : {role, role.substr(0, role.rfind('.'))}) {
    if (const Node* node = graph.FindNode(path)) return node->step;
  }
  return "";
}

// A refusal that names the role, the step that made it so ("" = the source), and why.
absl::Status CannotLay(const std::string& role, absl::string_view step, absl::string_view reason) {
  return Error(1601, role,
               step.empty() ? std::string(reason) : absl::StrCat("after step ", step, ": ", reason),
               "leave the step out, or write the twin's own layout with --to twin");
}

std::string StorageText(const Storage& storage) {
  return absl::StrCat(storage.orientation == Orientation::kOutIn ? "[out, in]" : "[in, out]",
                      storage.per_expert ? ", one tensor per expert" : "");
}

absl::Status CheckStorage(const LayoutPart& part, const Param& param) {
  if (absl::StatusOr<FactoredPart> factored = FactorPart(part, param.type); !factored.ok()) {
    return CannotLay(part.role, param.laid_by, DiagnosticOf(factored.status())->message);
  }
  const Storage storage = StorageOf(part, param.type);
  if (param.storage == storage) return absl::OkStatus();
  return CannotLay(
      part.role, param.laid_by,
      absl::StrCat("it lies ", StorageText(param.storage), ", the layout stores it ", StorageText(storage)));
}

// A bundle is fine where the layout has one tensor with exactly its members, joined alike.
absl::Status CheckBundle(const Graph& graph, const Bundle& bundle, const LayoutTensor& tensor) {
  const std::string& first = bundle.members[0];
  std::vector<std::string> roles;
  for (const LayoutPart& part : tensor.parts) roles.push_back(part.role);
  if (roles != bundle.members) {
    const std::string with = roles.size() == 1 ? "alone" : absl::StrCat("with ", roles.size() - 1, " others");
    return CannotLay(first, bundle.laid_by,
                     absl::StrCat("it lies fused in ", bundle.role, ", the layout stores it ", with, " in \"",
                                  tensor.NameAt(0), "\""));
  }
  if (bundle.shards != 1) {
    return CannotLay(
        first, bundle.laid_by,
        absl::StrCat(bundle.role, " is cut for ", bundle.shards, " shards, the layout stores it whole"));
  }
  const ParamType& type = graph.FindParam(first)->type;
  TWIN_ASSIGN_OR_RETURN(const FactoredPart part, FactorPart(tensor.parts[0], type));
  const bool concat = bundle.arrangement == Arrangement::kConcat;
  const std::string& axis = concat ? type.axes[type.lead + type.in].name : type.axes.back().name;
  if (bundle.arrangement == tensor.arrangement && part.names[tensor.join_axis] == axis)
    return absl::OkStatus();
  return CannotLay(first, bundle.laid_by,
                   absl::StrCat(bundle.role, " is ", concat ? "joined" : "interleaved", " along ", axis,
                                ", \"", tensor.NameAt(0), "\" is laid otherwise"));
}

// A tied role that is left out lies as its partner's tensor does.
absl::Status CheckTied(const Graph& graph, const Tie& tie) {
  const Param& role = *graph.FindParam(tie.role);
  const Param& to = *graph.FindParam(tie.to);
  if (const Bundle* bundle = graph.BundleOf(tie.role)) {
    return CannotLay(tie.role, bundle->laid_by,
                     absl::StrCat("it is tied to ", tie.to, " and can't lie in a bundle"));
  }
  const bool same = role.type.axes == to.type.axes;
  const Orientation turned =
      to.storage.orientation == Orientation::kOutIn ? Orientation::kInOut : Orientation::kOutIn;
  const Orientation lies = same ? to.storage.orientation : turned;
  if (!role.type.is_kernel() || role.storage.orientation == lies) return absl::OkStatus();
  return CannotLay(tie.role, role.laid_by.empty() ? to.laid_by : role.laid_by,
                   absl::StrCat("it is tied to ", tie.to, ", which lies the other way"));
}

// How a tensor's parts lie: factored, and each part's whole program with its axes in the order of the file,
// the experts first. The experts of one stack share it.
struct Laid {
  FactoredTensor factored;
  std::vector<WeightPtr> programs;
};

std::shared_ptr<const Laid> Lay(const Graph& graph, const LayoutTensor& tensor, FactoredTensor factored) {
  Laid laid;
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    const FactoredPart& part = factored.parts[i];
    std::vector<int64_t> perm;
    if (part.expert_axis >= 0) perm.push_back(part.expert_axis);
    for (int64_t axis : part.perm) {
      perm.push_back(part.expert_axis >= 0 && axis >= part.expert_axis ? axis + 1 : axis);
    }
    laid.programs.push_back(Transpose(graph.FindParam(tensor.parts[i].role)->program, std::move(perm)));
  }
  laid.factored = std::move(factored);
  return std::make_shared<const Laid>(std::move(laid));
}

struct PlacedTensor {
  const LayoutTensor* tensor;
  int64_t expert;  // of a run
  std::shared_ptr<const Laid> laid;
};

WeightPtr FileProgram(const LayoutTensor& tensor, int64_t expert, const Laid& laid) {
  std::vector<WeightPtr> parts;
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    const bool one = laid.factored.parts[i].expert_axis >= 0;
    parts.push_back(one ? ExpertOf(laid.programs[i], 0, expert) : laid.programs[i]);
  }
  return Reshape(Join(std::move(parts), tensor.join_axis, tensor.arrangement), laid.factored.stored);
}

std::vector<NamedProgram> FilePrograms(const std::vector<PlacedTensor>& placed) {
  std::vector<NamedProgram> files(placed.size());
  ParallelFor(static_cast<int64_t>(placed.size()), kTensorsPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& [tensor, expert, laid] = placed[i];
      files[i] = {tensor->NameAt(expert), FileProgram(*tensor, expert, *laid)};
    }
  });
  return files;
}

// Whether the graph has all roles of a tensor; TF1601 where it has only some, or lacks one that must be.
absl::StatusOr<bool> IsPresent(const Graph& graph, const LayoutTensor& tensor) {
  size_t present = 0;
  const std::string* absent = nullptr;
  for (const LayoutPart& part : tensor.parts) {
    if (graph.FindParam(part.role) != nullptr) {
      ++present;
    } else {
      absent = &part.role;
    }
  }
  if (present == tensor.parts.size()) return true;
  if (present == 0 && tensor.optional) return false;
  return CannotLay(*absent, StepOf(graph, *absent),
                   absl::StrCat("the model does not have it, and \"", tensor.NameAt(0), "\" needs it"));
}

}  // namespace

absl::StatusOr<std::vector<NamedProgram>> FilesFromGraph(const Layout& layout, const Graph& graph) {
  std::set<std::string> tied;
  for (const Tie& tie : layout.ties) {
    if (!IsTied(graph, tie)) continue;
    TWIN_RETURN_IF_ERROR(CheckTied(graph, tie));
    tied.insert(tie.role);
  }
  std::map<std::string, const ParamType*> types;
  for (const auto& [role, param] : graph.params()) types.emplace_hint(types.end(), role, &param.type);
  std::vector<PlacedTensor> files;
  std::set<std::string> placed = tied;
  for (const LayoutTensor& tensor : layout.tensors) {
    TWIN_ASSIGN_OR_RETURN(const bool present, IsPresent(graph, tensor));
    if (!present || (tensor.parts.size() == 1 && tied.contains(tensor.parts[0].role))) continue;
    for (const LayoutPart& part : tensor.parts) {
      TWIN_RETURN_IF_ERROR(CheckStorage(part, *graph.FindParam(part.role)));
      placed.insert(part.role);
      const Bundle* bundle = graph.BundleOf(part.role);
      if (bundle != nullptr) TWIN_RETURN_IF_ERROR(CheckBundle(graph, *bundle, tensor));
      if (const LayerStack* stack = graph.StackOf(bundle != nullptr ? bundle->role : part.role)) {
        return CannotLay(
            part.role, stack->laid_by,
            absl::StrCat("it lies stacked in ", stack->role, ", the layout stores layers apart"));
      }
    }
    TWIN_ASSIGN_OR_RETURN(FactoredTensor factored, FactorTensor(tensor, types));
    const std::shared_ptr<const Laid> laid = Lay(graph, tensor, std::move(factored));
    for (int64_t expert = 0; expert < tensor.count(); ++expert) files.push_back({&tensor, expert, laid});
  }
  for (const auto& [role, param] : graph.params()) {
    if (!placed.contains(role))
      return CannotLay(role, param.laid_by.empty() ? StepOf(graph, role) : param.laid_by,
                       "the layout has no place for it");
  }
  return FilePrograms(files);
}

}  // namespace twinforge
