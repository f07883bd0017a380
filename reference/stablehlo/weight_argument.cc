#include "reference/stablehlo/weight_argument.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace twinforge {
namespace {

// How a parameter's axes stand in its stored tensor.
struct Standing {
  int64_t lead = 0, in = 0, out = 0;  // how many axes of each kind
  bool out_first = true;
  std::vector<int64_t> order;  // factored stored axis i is axis order[i] of the type
  int64_t in_place = -1;       // the merged stored axis of in axes; -1: none
  int64_t out_place = -1;
};

Standing StandingOf(const Param& param) {
  const ParamType& type = param.type;
  Standing standing;
  standing.lead = type.lead;
  standing.in = type.in;
  standing.out = static_cast<int64_t>(type.axes.size()) - type.lead - type.in;
  standing.out_first = param.storage.orientation == Orientation::kOutIn;
  standing.order.resize(type.axes.size());
  std::iota(standing.order.begin(), standing.order.end(), int64_t{0});
  if (standing.out_first) {
    std::rotate(standing.order.begin() + type.lead, standing.order.begin() + type.lead + type.in,
                standing.order.end());
  }
  const bool both = standing.in > 0 && standing.out > 0;
  if (standing.out > 0) standing.out_place = standing.lead + (both && !standing.out_first ? 1 : 0);
  if (standing.in > 0) standing.in_place = standing.lead + (both && standing.out_first ? 1 : 0);
  return standing;
}

// What was read of the stored tensor in `dtype`, by way of the parameter's own: it may be a narrower one.
MlirValue InType(MlirBody& body, const MlirValue& x, const StoredWeight& weight, DType dtype) {
  return body.Convert(body.Convert(x, weight.param->type.dtype), dtype);
}

int64_t OutSize(const Param& param) {
  const Standing standing = StandingOf(param);
  int64_t product = 1;
  for (int64_t i = 0; i < standing.out; ++i) product *= param.type.axes[standing.lead + standing.in + i].size;
  return product;
}

Shape Extents(const std::vector<ParamAxis>& axes, int64_t first, int64_t count) {
  Shape shape;
  for (int64_t i = first; i < first + count; ++i) shape.push_back(axes[i].size);
  return shape;
}

// The part of axis `place` of x that is the weight's own, where x has it joined with its bundle's others.
MlirValue OwnPart(MlirBody& body, const MlirValue& x, const StoredWeight& weight, int64_t place) {
  if (weight.bundle == nullptr) return x;
  const std::vector<std::string>& members = weight.bundle->members;
  const int64_t joined = x.type.shape[place], own = OutSize(*weight.param);
  const auto count = static_cast<int64_t>(members.size());
  const auto member = std::find(members.begin(), members.end(), weight.param->role) - members.begin();
  Shape split = x.type.shape, single = x.type.shape;
  single[place] = own;
  if (weight.bundle->arrangement == Bundle::Arrangement::kInterleave) {
    split[place] = joined / count;
    split.insert(split.begin() + place + 1, count);
    return body.Reshape(body.Slice(body.Reshape(x, split), place + 1, member, 1), single);
  }
  const int64_t shards = weight.bundle->shards;
  int64_t start = 0;
  for (int64_t i = 0; i < member; ++i) start += OutSize(*weight.graph->FindParam(members[i]));
  if (shards == 1) return body.Slice(x, place, start, own);
  split[place] = shards;
  split.insert(split.begin() + place + 1, joined / shards);
  return body.Reshape(body.Slice(body.Reshape(x, split), place + 1, start / shards, own / shards), single);
}

// The weight alone, with every axis of its type, in the order they are stored.
MlirValue Factored(MlirBody& body, const StoredWeight& weight, DType dtype, const Standing& standing) {
  MlirValue own = InType(body, weight.stored, weight, dtype);
  if (standing.out_place >= 0) own = OwnPart(body, own, weight, standing.out_place);
  Shape shape;
  for (int64_t axis : standing.order) shape.push_back(weight.param->type.axes[axis].size);
  return body.Reshape(own, shape);
}

template <typename Repeated>
bool IsRun(const Repeated& places, int64_t first) {
  for (int i = 0; i < places.size(); ++i) {
    if (places.Get(i) != first + i) return false;
  }
  return true;
}

// The usual product: x's last axes with all in axes of the weight, and with its lead axes or none of them.
std::optional<MlirValue> PlainProduct(MlirBody& body, const MlirValue& x, const StoredWeight& weight,
                                      const DotAttrs& dot, const Standing& standing) {
  const auto rank = static_cast<int64_t>(x.type.shape.size());
  const int64_t count = dot.rhs_contract_size(), first = count == standing.in ? standing.lead : 0;
  const bool all = standing.in > 0 && standing.out > 0 && dot.lhs_batch_size() == 0 &&
                   (count == standing.in || count == standing.lead + standing.in) &&
                   IsRun(dot.rhs_contract(), first) && IsRun(dot.lhs_contract(), rank - count);
  if (!all) return std::nullopt;
  const std::vector<ParamAxis>& axes = weight.param->type.axes;
  const Shape free(x.type.shape.begin(), x.type.shape.end() - count);
  Shape merged = free;
  MlirBody::Product places;
  for (int64_t axis = first; axis < standing.lead; ++axis) {
    places.y_contract.push_back(axis);
    merged.push_back(axes[axis].size);
  }
  places.y_contract.push_back(standing.in_place);
  merged.push_back(ElementCount(Extents(axes, standing.lead, standing.in)));
  for (size_t i = 0; i < places.y_contract.size(); ++i) {
    places.x_contract.push_back(static_cast<int64_t>(free.size() + i));
  }
  const MlirValue y =
      body.Dot(body.Reshape(x, merged), InType(body, weight.stored, weight, x.type.dtype), places);
  const MlirValue own = OwnPart(body, y, weight, static_cast<int64_t>(y.type.shape.size()) - 1);
  Shape shape(own.type.shape.begin(), own.type.shape.end() - 1);
  const Shape out = Extents(axes, standing.lead + standing.in, standing.out);
  shape.insert(shape.end(), out.begin(), out.end());
  return body.Reshape(own, shape);
}

}  // namespace

std::vector<std::vector<ParamAxis>> StoredAxes(const Param& param) {
  const Standing standing = StandingOf(param);
  std::vector<std::vector<ParamAxis>> axes;
  for (int64_t i = 0; i < standing.lead; ++i) axes.push_back({param.type.axes[i]});
  axes.resize(standing.lead + (standing.in > 0 ? 1 : 0) + (standing.out > 0 ? 1 : 0));
  for (int64_t i = standing.lead; i < static_cast<int64_t>(param.type.axes.size()); ++i) {
    const bool is_in = i < standing.lead + standing.in;
    axes[is_in ? standing.in_place : standing.out_place].push_back(param.type.axes[i]);
  }
  return axes;
}

MlirValue WholeWeight(MlirBody& body, const StoredWeight& weight, DType dtype) {
  const Standing standing = StandingOf(*weight.param);
  std::vector<int64_t> back(standing.order.size());
  for (size_t i = 0; i < back.size(); ++i) back[standing.order[i]] = static_cast<int64_t>(i);
  return body.Transpose(Factored(body, weight, dtype, standing), back);
}

MlirValue WeightProduct(MlirBody& body, const MlirValue& x, const StoredWeight& weight, const DotAttrs& dot) {
  const Standing standing = StandingOf(*weight.param);
  if (const auto plain = PlainProduct(body, x, weight, dot, standing)) return *plain;
  // Any other: the weight's axes are named where they are stored, and the result's are put in order.
  const auto rank = static_cast<int64_t>(standing.order.size());
  std::vector<int64_t> stored(rank);
  for (int64_t i = 0; i < rank; ++i) stored[standing.order[i]] = i;
  MlirBody::Product places;
  places.x_batch = {dot.lhs_batch().begin(), dot.lhs_batch().end()};
  places.x_contract = {dot.lhs_contract().begin(), dot.lhs_contract().end()};
  std::vector<bool> gone(rank, false);
  for (int64_t axis : dot.rhs_batch()) places.y_batch.push_back(stored[axis]);
  for (int64_t axis : dot.rhs_contract()) places.y_contract.push_back(stored[axis]);
  for (int64_t axis : dot.rhs_batch()) gone[axis] = true;
  for (int64_t axis : dot.rhs_contract()) gone[axis] = true;
  const MlirValue y = body.Dot(x, Factored(body, weight, x.type.dtype, standing), places);
  std::vector<int64_t> free_as_stored;  // axes of the type
  for (int64_t axis : standing.order) {
    if (!gone[axis]) free_as_stored.push_back(axis);
  }
  const auto before = static_cast<int64_t>(y.type.shape.size() - free_as_stored.size());
  std::vector<int64_t> permutation(before);
  std::iota(permutation.begin(), permutation.end(), int64_t{0});
  std::vector<int64_t> sorted = free_as_stored;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t axis : sorted) {
    const auto at = std::find(free_as_stored.begin(), free_as_stored.end(), axis) - free_as_stored.begin();
    permutation.push_back(before + at);
  }
  return body.Transpose(y, permutation);
}

MlirValue WeightRows(MlirBody& body, const StoredWeight& weight, const MlirValue& index, DType dtype) {
  const Standing standing = StandingOf(*weight.param);
  const bool rows = weight.bundle == nullptr && standing.lead == 0 && standing.in == 1 && standing.out == 1 &&
                    !standing.out_first;
  if (!rows) return body.Gather(WholeWeight(body, weight, dtype), index, 0);
  return InType(body, body.Gather(weight.stored, index, 0), weight, dtype);
}

std::optional<KeptGroups> WeightArguments::KeptIn(const Param& param) const {
  const auto found = kept_.find(param.role);
  return found == kept_.end() ? KeptGroupsOf(param) : found->second;
}

WeightArguments::WeightArguments(const Graph& graph, std::map<std::string, KeptGroups> kept)
    : graph_(graph), kept_(std::move(kept)), tensors_(TwinTensors(graph)) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    for (const std::string& role : tensors_[i].roles) tensor_of_[role] = i;
  }
  for (const LayerStack& stack : graph.stacks()) {
    for (size_t i = 0; i < stack.members.size(); ++i) layer_of_[stack.members[i]] = static_cast<int64_t>(i);
  }
}

WeightArguments::Unit WeightArguments::UnitOf(const std::string& role) const {
  const Bundle* bundle = graph_.BundleOf(role);
  Unit unit;
  unit.name = bundle == nullptr ? role : bundle->role;
  const auto tensor = tensor_of_.find(role);
  TWIN_CHECK(tensor != tensor_of_.end(), "every parameter lies in a tensor");
  unit.tensor = tensor->second;
  const WeightPtr& program = tensors_[unit.tensor].program;
  unit.type = {program->dtype(), program->shape()};
  const auto layer = layer_of_.find(unit.name);
  if (layer == layer_of_.end()) return unit;
  unit.layer = layer->second;
  unit.type.shape.erase(unit.type.shape.begin());
  return unit;
}

}  // namespace twinforge
