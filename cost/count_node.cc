#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/node_counter.h"
#include "ir/largest.h"

namespace twinforge {
namespace {

// How the devices of a tensor-parallel group divide an axis, and which rewrite makes it divisible.
struct Split {
  absl::string_view axis;
  absl::string_view remedy;
};
constexpr Split kSplits[] = {{"heads", "pad_heads"}, {"kv_heads", "replicate_kv_heads"},
                             {"d_ff", "pad_ffn"},    {"shared_ff", "pad_ffn"},
                             {"vocab", "pad_vocab"}, {"channels", ""},
                             {"state_groups", ""},   {"key_heads", ""}};

// Whole on several devices where there are fewer than devices.
bool IsReplicable(absl::string_view axis) {
  return axis == "kv_heads" || axis == "state_groups" || axis == "key_heads";
}

const Split* FindSplit(absl::string_view axis) {
  for (const Split& split : kSplits) {
    if (split.axis == axis) return &split;
  }
  return nullptr;
}

bool IsOfExperts(const ParamType& type) {
  return type.lead > 0 && (type.axes[0].name == "expert" || type.axes[0].name == "expert_group");
}

}  // namespace

const ParamType& NodeCounter::TypeOf(absl::string_view slot) const {
  for (size_t i = 0; i < params_.size(); ++i) {
    if (node_.params[i].first == slot) return params_[i]->type;
  }
  TWIN_CHECK(false, "the node has no parameter in this slot");
}

int64_t NodeCounter::DevicesOf(const ParamAxis& axis, bool of_experts) const {
  const Workload& workload = step_.workload;
  if (of_experts && (axis.name == "expert" || axis.name == "expert_group")) return workload.ep;
  if (FindSplit(axis.name) == nullptr) return 1;
  return of_experts && workload.ep > 1 ? workload.devices() / workload.ep : workload.shards;
}

absl::StatusOr<int64_t> NodeCounter::LocalSize(const ParamAxis& axis, bool of_experts) const {
  const int64_t devices = DevicesOf(axis, of_experts);
  if (axis.size % devices == 0) return axis.size / devices;
  const bool replicable = IsReplicable(axis.name);
  if (replicable && devices % axis.size == 0) return 1;
  return Error(1702, node_.path,
               absl::StrCat(axis.name, " ", axis.size, " does not divide over ", devices, " shards"),
               RemedyFor(axis, devices));
}

namespace {

// Groups in which query heads grow alike: as many as kv heads; 1 of latent attention.
int64_t HeadGroups(const Graph& graph, const Node& node) {
  if (!node.Has("k")) return 1;
  const ParamType& k = graph.param(node, "k").type;
  const int at = k.Find("kv_heads");
  return at < 0 ? 1 : k.axes[at].size;
}

// The size that the axis's rewrite gives it so that it divides over the devices; 0 where there is no rewrite,
// or it refuses. Query heads are padded inside the groups of their kv heads, which are then repeated until
// they divide too, and to no more than twice as many.
int64_t PaddedSize(const ParamAxis& axis, int64_t groups, int64_t devices) {
  const Split& split = *FindSplit(axis.name);
  if (split.remedy.empty()) return 0;
  int64_t multiple = devices, most = LargestSize(axis.name);
  if (axis.name == "heads") {
    most = std::min(most, 2 * axis.size);
    if (groups != axis.size) multiple = std::lcm(groups, devices);
  }
  const Exact fits = IsReplicable(axis.name) ? Exact(axis.size) * (devices / std::gcd(axis.size, devices))
                                             : RoundUp(axis.size, multiple);
  return fits.ok() && fits.value() <= most ? fits.value() : 0;
}

}  // namespace

// Whether each axis that does not divide has a rewrite that makes it.
bool NodeCounter::AllCanBePadded() const {
  for (const Node& node : step_.graph.nodes()) {
    const int64_t groups = HeadGroups(step_.graph, node);
    for (const auto& [slot, role] : node.params) {
      const ParamType& type = step_.graph.FindParam(role)->type;
      for (const ParamAxis& axis : type.axes) {
        const int64_t devices = DevicesOf(axis, IsOfExperts(type));
        if (axis.size % devices == 0 || (IsReplicable(axis.name) && devices % axis.size == 0)) continue;
        if (FindSplit(axis.name) == nullptr) continue;  // of experts: another ep is enough
        if (PaddedSize(axis, groups, devices) == 0) return false;
      }
    }
  }
  return true;
}

// A rewrite where that is enough, else a smaller mesh.
std::string NodeCounter::RemedyFor(const ParamAxis& axis, int64_t devices) const {
  const Workload& workload = step_.workload;
  if (FindSplit(axis.name) == nullptr) {
    int64_t ep = std::min(workload.ep, axis.size);
    while (axis.size % ep != 0 || workload.devices() % ep != 0) --ep;
    return absl::StrCat("ep=", ep, " would do");
  }
  if (AllCanBePadded())
    return absl::StrCat(FindSplit(axis.name)->remedy, " to ",
                        PaddedSize(axis, HeadGroups(step_.graph, node_), devices), " would do");
  const int64_t shards = ShardsThatDivide();
  return shards > 0 ? absl::StrCat("tp=", shards, " would do")
                    : std::string("tp=1 would do, with ep=1 as well");
}

// The most shards, fewer than the workload's, that every parameter of the graph divides over; 0 where its ep
// leaves none.
int64_t NodeCounter::ShardsThatDivide() const {
  const Workload& workload = step_.workload;
  std::set<std::tuple<std::string, int64_t, bool>> axes;
  for (const auto& [role, param] : step_.graph.params()) {
    for (const ParamAxis& axis : param.type.axes) axes.emplace(axis.name, axis.size, IsOfExperts(param.type));
  }
  for (int64_t shards = workload.shards - 1; shards > 0; --shards) {
    const int64_t devices = shards * workload.dp * workload.sp;
    if (devices % workload.ep != 0) continue;
    const bool all = std::all_of(axes.begin(), axes.end(), [&](const auto& row) {
      const auto& [name, size, of_experts] = row;
      if (FindSplit(name) == nullptr) return true;
      const int64_t parts = of_experts && workload.ep > 1 ? devices / workload.ep : shards;
      return size % parts == 0 || (IsReplicable(name) && parts % size == 0);
    });
    if (all) return shards;
  }
  return 0;
}

absl::StatusOr<Extents> NodeCounter::ExtentsOf(const ParamType& type) const {
  Extents extents;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    const ParamAxis& axis = type.axes[i];
    TWIN_ASSIGN_OR_RETURN(const int64_t size, LocalSize(axis, IsOfExperts(type)));
    const int at = static_cast<int>(i);
    if (at < type.lead) {
      extents.lead *= size;
    } else if (at < type.lead + type.in) {
      extents.in *= size;
      extents.logical_in = extents.logical_in * axis.logical;
    } else {
      extents.out *= size;
      extents.logical_out = extents.logical_out * axis.logical;
    }
  }
  return extents;
}

StoredArray ArrayOf(const ParamType& type, const Extents& extents, int64_t lead) {
  StoredArray array{.dtype = type.dtype};
  if (type.lead > 0) array.shape.push_back(lead);
  if (type.in > 0) array.shape.push_back(extents.in);
  array.shape.push_back(extents.out);
  return array;
}

bool NodeCounter::IsRecoded(const ParamType& type, absl::string_view slot) const {
  if (!step_.workload.precision.weights || !type.is_kernel() || slot == "router") return false;
  switch (node_.op) {
    case OpKind::kAttention:
    case OpKind::kLatentAttention:
    case OpKind::kShortConv:
    case OpKind::kStateSpace:
    case OpKind::kDeltaRule:
      return !step_.workload.precision.attention_as_is;
    case OpKind::kMlp:
    case OpKind::kGatedMlp:
    case OpKind::kMoe:
      return true;
    default:
      return false;
  }
}

DType NodeCounter::KernelType(const ParamType& type, absl::string_view slot) const {
  return IsRecoded(type, slot) ? step_.workload.precision.weights->multiplied : type.dtype;
}

DType NodeCounter::ActivationType(const ParamType& type, absl::string_view slot) const {
  return IsRecoded(type, slot) ? step_.workload.precision.activations.value_or(OperandType()) : OperandType();
}

// The array, and the scales of its groups where the workload's precision gives it any.
void NodeCounter::Store(const ParamType& type, absl::string_view slot, const Extents& extents, int64_t lead,
                        std::vector<StoredArray>& into) const {
  into.push_back(ArrayOf(type, extents, lead));
  if (!IsRecoded(type, slot)) return;
  const WeightFormat& format = *step_.workload.precision.weights;
  into.back().dtype = format.stored;
  if (format.group_in == 0) return;
  const Extents groups = {.in = CeilDiv(extents.in, format.group_in),
                          .out = CeilDiv(extents.out, format.group_out)};
  into.push_back(ArrayOf(type, groups, lead));
  into.back().dtype = format.scale;
}

absl::Status NodeCounter::Read(absl::string_view slot, int64_t lead) {
  const ParamType& type = TypeOf(slot);
  TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(type));
  Store(type, slot, extents, lead, out_.weights);
  return absl::OkStatus();
}

// Everything is stored; biases, norms and sinks, which have no product of their own, are read here.
absl::Status NodeCounter::StoreAll() {
  for (size_t i = 0; i < params_.size(); ++i) {
    const ParamType& type = params_[i]->type;
    TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(type));
    std::vector<StoredArray> arrays;
    Store(type, node_.params[i].first, extents, extents.lead, arrays);
    if (!type.is_kernel() && type.lead == 0) out_.weights.push_back(arrays[0]);
    out_.stored.push_back(std::move(arrays));
  }
  return absl::OkStatus();
}

// rows x [in, out] of one device, `all_rows` of all.
absl::Status NodeCounter::Multiply(absl::string_view slot, int64_t rows, Exact all_rows) {
  const ParamType& type = TypeOf(slot);
  TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(type));
  out_.products.push_back({.m = rows,
                           .k = extents.in,
                           .n = extents.out,
                           .left = ActivationType(type, slot),
                           .right = KernelType(type, slot),
                           .useful = all_rows * extents.logical_in * extents.logical_out});
  return absl::OkStatus();
}

absl::Status NodeCounter::Dense(absl::string_view slot, int64_t rows, Exact all_rows) {
  TWIN_RETURN_IF_ERROR(Read(slot, 1));
  return Multiply(slot, rows, all_rows);
}

absl::StatusOr<Exact> NodeCounter::Elements(absl::Span<const Axis> axes, bool all) const {
  Exact sum;
  for (const StepPart& part : step_.parts) {
    const std::map<std::string, int64_t> symbols = {{"batch", all ? part.all : part.sequences},
                                                    {"seq", all ? part.fresh : part.own},
                                                    {"past", part.past}};
    Exact elements = 1;
    for (const Axis& axis : axes) {
      const std::optional<int64_t> number = axis.size.value();
      const std::optional<int64_t> size = number ? number : axis.size.Bind(symbols);
      if (!size) return Error(1705, node_.path, absl::StrCat("axis ", axis.name, " has no size in a step"));
      elements = elements * *size;
    }
    sum += elements;
  }
  return sum;
}

// A linear may follow a slice, so its rows come from its operand.
absl::Status NodeCounter::Linear() {
  const Type& operand = step_.graph.node(node_.operands[0]).type;
  const absl::Span<const Axis> axes(operand.axes.data(), operand.axes.size() - TypeOf("kernel").in);
  TWIN_ASSIGN_OR_RETURN(const Exact rows, Elements(axes, /*all=*/false));
  TWIN_ASSIGN_OR_RETURN(const Exact all_rows, Elements(axes, /*all=*/true));
  return Dense("kernel", rows.value(), all_rows);
}

int64_t NodeCounter::SlicesOfStage() const {
  const Workload& w = step_.workload;
  return SlicesOfShards() * (w.dcn.dp ? w.dp : 1) * (w.dcn.sp ? w.sp : 1);
}

// Learned positions end where their table does.
absl::Status NodeCounter::CheckPositions() const {
  const int64_t known = TypeOf("position_table").axes[0].logical - node_.attrs->embedding().position_offset();
  for (const StepPart& part : step_.parts) {
    const int64_t places = part.past + part.fresh;
    if (places <= known) continue;
    const bool decodes = step_.workload.phase == Phase::kDecode && &part == step_.parts.data();
    const int64_t left = decodes ? known - 1 : known - part.past;
    return Error(1703, node_.path, absl::StrCat(places, " places, but the position table has ", known),
                 step_.workload.chunk > 0 && !decodes
                     ? absl::StrCat("give a chunk and a past of at most ", known, " together")
                 : left > 0 ? absl::StrCat("give a context of at most ", left)
                            : absl::StrCat("give a past of at most ", known - 1));
  }
  return absl::OkStatus();
}

absl::Status NodeCounter::Embedding() {
  const auto rows_of = [&](absl::string_view slot, int64_t rows) -> Exact {
    const ParamType& type = TypeOf(slot);
    return Exact(std::min(rows, type.axes[0].size)) * CompactBytes(type.dtype, {type.axes[1].size});
  };
  const int64_t shards = step_.workload.shards;
  TWIN_RETURN_IF_ERROR(ExtentsOf(TypeOf("table")).status());
  out_.rows_read += rows_of("table", CeilDiv(step_.rows, shards));
  AllReduce();
  if (node_.Has("position_table")) TWIN_RETURN_IF_ERROR(CheckPositions());
  int64_t places = 0;
  for (const StepPart& part : step_.parts) places += part.own;
  if (node_.Has("position_table")) out_.rows_read += rows_of("position_table", places);
  if (node_.Has("type_table")) out_.rows_read += rows_of("type_table", 1);
  return absl::OkStatus();
}

// The parts of a result that tensor-parallel devices have each of their own are added up.
void NodeCounter::AllReduce() {
  if (step_.workload.shards == 1) return;
  const Exact elements = Exact(step_.rows) * node_.type.axes.back().size.value().value_or(0);
  const Exact bytes = elements.ok() ? CompactBytes(node_.type.dtype, {elements.value()}) : elements;
  out_.collectives.push_back({Collective::Kind::kAllReduce, bytes, step_.workload.shards, SlicesOfShards()});
}

absl::Status NodeCounter::Mlp(const std::vector<absl::string_view>& slots) {
  for (absl::string_view slot : slots) TWIN_RETURN_IF_ERROR(DenseRows(slot));
  AllReduce();
  return absl::OkStatus();
}

// Every device has the logits of its part of the vocabulary; sampling needs them in one place.
absl::Status NodeCounter::Head() {
  TWIN_RETURN_IF_ERROR(step_.causal ? Dense("head", step_.sequences, step_.all_sequences)
                                    : DenseRows("head"));
  if (step_.workload.shards == 1) return absl::OkStatus();
  const Product& product = out_.products.back();
  out_.collectives.push_back({Collective::Kind::kAllGather,
                              CompactBytes(node_.type.dtype, {product.m, product.n}), step_.workload.shards,
                              SlicesOfShards()});
  return absl::OkStatus();
}

absl::Status NodeCounter::Result() {
  if (node_.op == OpKind::kLmHead) {
    const ParamType& head = TypeOf("head");
    TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(head));
    out_.result_bytes = CompactBytes(node_.type.dtype, {out_.products[0].m, extents.out});
    return absl::OkStatus();
  }
  TWIN_ASSIGN_OR_RETURN(const Exact elements, Elements(node_.type.axes, /*all=*/false));
  out_.result_bytes = elements.ok() ? CompactBytes(node_.type.dtype, {elements.value()}) : elements;
  return absl::OkStatus();
}

absl::Status NodeCounter::Run() {
  const auto count = [&]() -> absl::Status {
    switch (node_.op) {
      case OpKind::kInput:
      case OpKind::kAdd:
      case OpKind::kActivation:
      case OpKind::kSlice:
      case OpKind::kRmsNorm:
      case OpKind::kLayerNorm:
        return absl::OkStatus();
      case OpKind::kLinear:
        return Linear();
      case OpKind::kEmbedding:
        return Embedding();
      case OpKind::kAttention:
        return Attention();
      case OpKind::kLatentAttention:
        return LatentAttention();
      case OpKind::kShortConv:
        return ShortConv();
      case OpKind::kStateSpace:
        return StateSpace();
      case OpKind::kDeltaRule:
        return DeltaRule();
      case OpKind::kMlp:
        return Mlp({"up", "down"});
      case OpKind::kGatedMlp:
        return Mlp({"gate", "up", "down"});
      case OpKind::kMoe:
        return Moe();
      case OpKind::kLmHead:
        return Head();
      default:
        return Error(1705, node_.path, absl::StrCat("no count is known for ", Info(node_.op).name),
                     "score a model before it is lowered to primitives");
    }
  };
  TWIN_RETURN_IF_ERROR(count());
  TWIN_RETURN_IF_ERROR(StoreAll());
  return Result();
}

absl::Status CountNode(const Step& step, const Node& node, absl::Span<const Param* const> params,
                       NodeCount& count) {
  return NodeCounter(step, node, params, count).Run();
}

}  // namespace twinforge
