#include "cost/count_node.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

// How the devices of a tensor-parallel group divide an axis, and which rewrite makes it divisible.
struct Split {
  absl::string_view axis;
  absl::string_view remedy;
};
constexpr Split kSplits[] = {{"heads", "pad_heads"},
                             {"kv_heads", "replicate_kv_heads"},
                             {"d_ff", "pad_ffn"},
                             {"shared_ff", "pad_ffn"},
                             {"vocab", "pad_vocab"}};

const Split* FindSplit(absl::string_view axis) {
  for (const Split& split : kSplits) {
    if (split.axis == axis) return &split;
  }
  return nullptr;
}

// A parameter's extents on one device, in and out axes multiplied out, and the logical ones of the whole.
struct Extents {
  int64_t lead = 1;
  int64_t in = 1;
  int64_t out = 1;
  Exact logical_in = 1;
  Exact logical_out = 1;
};

class NodeCounter {
 public:
  NodeCounter(const Step& step, const Node& node, absl::Span<const Param* const> params, NodeCount& out)
      : step_(step), node_(node), params_(params), out_(out) {}

  absl::Status Run();

 private:
  absl::Status Read(absl::string_view slot, int64_t lead);
  absl::Status StoreAll();
  absl::Status Dense(absl::string_view slot, int64_t rows);
  absl::Status Linear();
  absl::Status Embedding();
  absl::Status CheckPositions() const;
  absl::Status Attention();
  absl::Status LatentAttention();
  absl::Status Absorbed(int64_t heads);
  absl::Status Mlp(const std::vector<absl::string_view>& slots);
  absl::Status Moe();
  absl::Status Expert(absl::string_view slot, int64_t choices, int64_t distinct);
  absl::Status Head();
  absl::Status Result();

  absl::StatusOr<int64_t> LocalSize(const ParamAxis& axis) const;
  absl::StatusOr<Extents> ExtentsOf(const ParamType& type) const;
  const ParamType& TypeOf(absl::string_view slot) const;
  int64_t Logical(absl::string_view slot, absl::string_view axis) const {
    return TypeOf(slot).Get(axis).logical;
  }
  DType OperandType() const { return step_.graph.node(node_.operands[0]).type.dtype; }

  // The products of attention proper, of `groups` independent key sets each shared by `queries` heads.
  struct Heads {
    int64_t groups = 1;
    int64_t queries = 1;
    int64_t score_width = 1;
    int64_t value_width = 1;
    Exact useful_scores;  // multiply-adds of one pair over all heads, at logical sizes
    Exact useful_values;
  };
  void Scores(const Heads& heads, Exact pairs, int64_t keys);
  void Cache(std::vector<int64_t> row_extents, int64_t arrays, int64_t window);

  const Step& step_;
  const Node& node_;
  const absl::Span<const Param* const> params_;
  NodeCount& out_;
};

const ParamType& NodeCounter::TypeOf(absl::string_view slot) const {
  for (size_t i = 0; i < params_.size(); ++i) {
    if (node_.params[i].first == slot) return params_[i]->type;
  }
  TWIN_CHECK(false, "the node has no parameter in this slot");
}

absl::StatusOr<int64_t> NodeCounter::LocalSize(const ParamAxis& axis) const {
  const int64_t shards = step_.workload.shards;
  if (shards == 1) return axis.size;
  const Split* split = FindSplit(axis.name);
  if (split == nullptr) return axis.size;
  if (axis.size % shards == 0) return axis.size / shards;
  const bool replicable = axis.name == "kv_heads";
  if (replicable && shards % axis.size == 0) return 1;
  const int64_t fits = replicable ? std::lcm(axis.size, shards) : RoundUp(axis.size, shards).value();
  return Error(1702, node_.path,
               absl::StrCat(axis.name, " ", axis.size, " does not divide over ", shards, " shards"),
               absl::StrCat(split->remedy, " to ", fits, " would do"));
}

absl::StatusOr<Extents> NodeCounter::ExtentsOf(const ParamType& type) const {
  Extents extents;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    const ParamAxis& axis = type.axes[i];
    TWIN_ASSIGN_OR_RETURN(const int64_t size, LocalSize(axis));
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

// A parameter's array on one device, with `lead` of its stack.
StoredArray ArrayOf(const ParamType& type, const Extents& extents, int64_t lead) {
  StoredArray array{.dtype = type.dtype};
  if (type.lead > 0) array.shape.push_back(lead);
  if (type.in > 0) array.shape.push_back(extents.in);
  array.shape.push_back(extents.out);
  return array;
}

absl::Status NodeCounter::Read(absl::string_view slot, int64_t lead) {
  const ParamType& type = TypeOf(slot);
  TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(type));
  out_.weights.push_back(ArrayOf(type, extents, lead));
  return absl::OkStatus();
}

// Everything is stored; biases, norms and sinks, which have no product of their own, are read here.
absl::Status NodeCounter::StoreAll() {
  for (size_t i = 0; i < params_.size(); ++i) {
    const ParamType& type = params_[i]->type;
    TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(type));
    out_.stored.push_back(ArrayOf(type, extents, extents.lead));
    if (!type.is_kernel() && type.lead == 0) out_.weights.push_back(out_.stored.back());
  }
  return absl::OkStatus();
}

// rows x [in, out], the kernel read once.
absl::Status NodeCounter::Dense(absl::string_view slot, int64_t rows) {
  const ParamType& type = TypeOf(slot);
  TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(type));
  out_.weights.push_back(ArrayOf(type, extents, 1));
  out_.products.push_back({.m = rows,
                           .k = extents.in,
                           .n = extents.out,
                           .left = OperandType(),
                           .right = type.dtype,
                           .useful = Exact(rows) * extents.logical_in * extents.logical_out});
  return absl::OkStatus();
}

// A linear may follow a slice, so its rows come from its operand.
absl::Status NodeCounter::Linear() {
  const ParamType& type = TypeOf("kernel");
  const Type& operand = step_.graph.node(node_.operands[0]).type;
  Exact rows = 1;
  for (size_t i = 0; i + type.in < operand.axes.size(); ++i) {
    const std::optional<int64_t> size = operand.axes[i].size.Bind(step_.symbols);
    if (!size)
      return Error(1705, node_.path, absl::StrCat("axis ", operand.axes[i].name, " has no size in a step"));
    rows = rows * *size;
  }
  return Dense("kernel", rows.value());
}

// Learned positions end where their table does.
absl::Status NodeCounter::CheckPositions() const {
  const int64_t known = TypeOf("position_table").axes[0].logical - node_.attrs->embedding().position_offset();
  const int64_t places = step_.past + step_.fresh;
  if (places <= known) return absl::OkStatus();
  return Error(1703, node_.path, absl::StrCat(places, " places, but the position table has ", known),
               absl::StrCat("give a context of at most ", known - (step_.past > 0 ? 1 : 0)));
}

absl::Status NodeCounter::Embedding() {
  const auto rows_of = [&](absl::string_view slot, int64_t rows) -> Exact {
    const ParamType& type = TypeOf(slot);
    return Exact(std::min(rows, type.axes[0].size)) * CompactBytes(type.dtype, {type.axes[1].size});
  };
  const int64_t shards = step_.workload.shards;
  TWIN_RETURN_IF_ERROR(ExtentsOf(TypeOf("table")).status());
  out_.rows_read += rows_of("table", CeilDiv(step_.rows, shards));
  if (node_.Has("position_table")) TWIN_RETURN_IF_ERROR(CheckPositions());
  if (node_.Has("position_table")) out_.rows_read += rows_of("position_table", step_.fresh);
  if (node_.Has("type_table")) out_.rows_read += rows_of("type_table", 1);
  return absl::OkStatus();
}

void NodeCounter::Scores(const Heads& heads, Exact pairs, int64_t keys) {
  const DType dtype = OperandType();
  const int64_t m = heads.queries * step_.fresh;
  const Exact group_pairs = pairs * heads.queries;
  const bool rectangle = group_pairs.value() == m * keys;
  const int64_t count = step_.workload.batch * heads.groups;
  const Exact all_pairs = pairs * step_.workload.batch;
  out_.products.push_back({.kind = rectangle ? Product::Kind::kDense : Product::Kind::kScores,
                           .m = m,
                           .k = heads.score_width,
                           .n = keys,
                           .count = count,
                           .pairs = group_pairs.value(),
                           .left = dtype,
                           .right = dtype,
                           .useful = all_pairs * heads.useful_scores});
  out_.products.push_back({.kind = rectangle ? Product::Kind::kDense : Product::Kind::kMix,
                           .m = m,
                           .k = keys,
                           .n = heads.value_width,
                           .count = count,
                           .pairs = group_pairs.value(),
                           .left = dtype,
                           .right = dtype,
                           .useful = all_pairs * heads.useful_values});
}

// `arrays` caches of [batch, row extents...] with the places between: keys and values, or one latent.
void NodeCounter::Cache(std::vector<int64_t> row_extents, int64_t arrays, int64_t window) {
  const auto within = [&](int64_t places, int64_t limit) {
    return window > 0 ? std::min(places, limit) : places;
  };
  const int64_t read = within(step_.past, window - 1);
  const int64_t kept = within(step_.past + step_.fresh, window);
  const DType dtype = OperandType();
  std::vector<int64_t> shape = {step_.workload.batch};
  shape.insert(shape.end(), row_extents.begin(), row_extents.end() - 1);
  const size_t places = shape.size();
  shape.push_back(0);
  shape.push_back(row_extents.back());
  for (int64_t i = 0; i < arrays; ++i) {
    shape[places] = read;
    if (read > 0) out_.cache_read.push_back({dtype, shape});
    shape[places] = kept;
    out_.cache_kept.push_back({dtype, shape});
    shape[places] = within(step_.fresh, window);
    out_.cache_written += CompactBytes(dtype, shape);
  }
}

absl::Status NodeCounter::Attention() {
  const AttentionAttrs& attrs = node_.attrs->attention();
  if (!attrs.causal() && step_.workload.phase == Phase::kDecode) {
    return Error(1705, node_.path, "attention that is not causal has no decode step", "use --phase prefill");
  }
  for (absl::string_view slot : {"q", "k", "v", "o"}) TWIN_RETURN_IF_ERROR(Dense(slot, step_.rows));
  const ParamType& q = TypeOf("q");
  const ParamType& k = TypeOf("k");
  TWIN_ASSIGN_OR_RETURN(const int64_t heads, LocalSize(q.Get("heads")));
  TWIN_ASSIGN_OR_RETURN(const int64_t kv_heads, LocalSize(k.Get("kv_heads")));
  const int64_t head_dim = q.Get("head_dim").size;
  const int64_t places = step_.past + step_.fresh;
  const int64_t window = attrs.window();
  const int64_t keys = attrs.causal() && window > 0 ? std::min(places, window) : places;
  const Exact pairs =
      attrs.causal() ? CausalPairs(step_.past, step_.fresh, window) : Exact(step_.fresh) * places;
  const Exact useful = Exact(Logical("q", "heads")) * Logical("q", "head_dim");
  Scores({.groups = kv_heads,
          .queries = heads / kv_heads,
          .score_width = head_dim,
          .value_width = head_dim,
          .useful_scores = useful,
          .useful_values = useful},
         pairs, keys);
  if (attrs.causal()) Cache({kv_heads, head_dim}, 2, window);
  return absl::OkStatus();
}

// One query row per sequence and head: q k_b meets the latents, the mixed latents meet v_b.
absl::Status NodeCounter::Absorbed(int64_t heads) {
  const ParamType& k_b = TypeOf("k_b");
  const ParamType& v_b = TypeOf("v_b");
  const int64_t batch = step_.workload.batch;
  const DType dtype = OperandType();
  for (absl::string_view slot : {"k_b", "v_b"}) TWIN_RETURN_IF_ERROR(Read(slot, 1));
  const int64_t lora = k_b.Get("kv_lora").size;
  const Exact latents = Exact(Logical("k_b", "heads")) * Logical("k_b", "kv_lora");
  out_.products.push_back({.m = batch,
                           .k = k_b.Get("nope_dim").size,
                           .n = lora,
                           .count = heads,
                           .left = dtype,
                           .right = k_b.dtype,
                           .useful = latents * Logical("k_b", "nope_dim") * batch});
  out_.products.push_back({.m = batch,
                           .k = lora,
                           .n = v_b.Get("v_head_dim").size,
                           .count = heads,
                           .left = dtype,
                           .right = v_b.dtype,
                           .useful = latents * Logical("v_b", "v_head_dim") * batch});
  const int64_t rope = TypeOf("k_rope").Get("rope_dim").size;
  const Exact rope_useful = Exact(Logical("k_b", "heads")) * Logical("k_rope", "rope_dim");
  const int64_t keys = step_.past + step_.fresh;
  Scores({.groups = 1,
          .queries = heads,
          .score_width = lora + rope,
          .value_width = lora,
          .useful_scores = latents + rope_useful,
          .useful_values = latents},
         CausalPairs(step_.past, step_.fresh, 0), keys);
  const bool absorbed = node_.attrs->latent_attention().absorbed();
  out_.note = absorbed ? "absorbed latent cache" : "latent cache, absorbed at best (absorb_mla makes it so)";
  return absl::OkStatus();
}

absl::Status NodeCounter::LatentAttention() {
  for (absl::string_view slot : {"q_a", "q_nope", "q_rope", "kv_a", "k_rope", "o"}) {
    if (node_.Has(slot)) TWIN_RETURN_IF_ERROR(Dense(slot, step_.rows));
  }
  const ParamType& k_b = TypeOf("k_b");
  TWIN_ASSIGN_OR_RETURN(const int64_t heads, LocalSize(k_b.Get("heads")));
  const int64_t rope = TypeOf("k_rope").Get("rope_dim").size;
  Cache({k_b.Get("kv_lora").size + rope}, 1, 0);
  if (step_.past > 0) return Absorbed(heads);
  for (absl::string_view slot : {"k_b", "v_b"}) TWIN_RETURN_IF_ERROR(Dense(slot, step_.rows));
  const Exact all_heads = Logical("k_b", "heads");
  Scores({.groups = heads,
          .queries = 1,
          .score_width = k_b.Get("nope_dim").size + rope,
          .value_width = TypeOf("v_b").Get("v_head_dim").size,
          .useful_scores = all_heads * (Exact(Logical("k_b", "nope_dim")) + Logical("k_rope", "rope_dim")),
          .useful_values = all_heads * Logical("v_b", "v_head_dim")},
         CausalPairs(0, step_.fresh, 0), step_.fresh);
  out_.note = "expanded latent cache";
  return absl::OkStatus();
}

absl::Status NodeCounter::Mlp(const std::vector<absl::string_view>& slots) {
  for (absl::string_view slot : slots) TWIN_RETURN_IF_ERROR(Dense(slot, step_.rows));
  return absl::OkStatus();
}

// One kernel of the experts that are chosen. Groups compute all their members for each token that chose one.
absl::Status NodeCounter::Expert(absl::string_view slot, int64_t choices, int64_t distinct) {
  const ParamType& type = TypeOf(slot);
  if (!type.is_kernel()) return Read(slot, distinct);
  TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(type));
  out_.weights.push_back(ArrayOf(type, extents, distinct));
  const Exact assigned = Exact(step_.rows) * choices;
  const int member = type.Find("member");
  const int64_t logical_members = member < 0 ? 1 : type.axes[member].logical;
  Exact useful = Exact(step_.rows) * node_.attrs->moe().top_k() * (extents.logical_in * extents.logical_out) /
                 logical_members;
  const auto add = [&](int64_t rows, int64_t count) {
    if (rows == 0 || count == 0) return;
    out_.products.push_back({.m = rows,
                             .k = extents.in,
                             .n = extents.out,
                             .count = count,
                             .left = OperandType(),
                             .right = type.dtype,
                             .useful = useful});
    useful = 0;
  };
  add(assigned.value() / distinct + 1, assigned.value() % distinct);
  add(assigned.value() / distinct, distinct - assigned.value() % distinct);
  return absl::OkStatus();
}

absl::Status NodeCounter::Moe() {
  const MoeAttrs& attrs = node_.attrs->moe();
  TWIN_RETURN_IF_ERROR(Dense("router", step_.rows));
  const ParamType& gate = TypeOf("gate");
  const int member = gate.Find("member");
  const int64_t members = member < 0 ? 1 : gate.axes[member].size;
  const int64_t stacks = gate.axes[0].logical;  // experts, or groups of them
  const bool same = step_.workload.routing == Routing::kSame;
  // Stacks that one token's choices fall into, and that all tokens' choices fall into.
  const int64_t choices = std::min(stacks, same ? CeilDiv(attrs.top_k(), members) : attrs.top_k());
  const Exact assigned = Exact(step_.rows) * choices;
  const int64_t distinct = same || !assigned.ok() ? choices : std::min(stacks, assigned.value());
  for (absl::string_view slot : {"gate", "up", "down", "gate_bias", "up_bias", "down_bias"}) {
    if (node_.Has(slot)) TWIN_RETURN_IF_ERROR(Expert(slot, choices, distinct));
  }
  for (absl::string_view slot : {"shared_gate", "shared_up", "shared_down"}) {
    if (node_.Has(slot)) TWIN_RETURN_IF_ERROR(Dense(slot, step_.rows));
  }
  out_.note = same ? "every token takes the same experts (least)" : "experts evenly loaded (most distinct)";
  return absl::OkStatus();
}

absl::Status NodeCounter::Head() { return Dense("head", step_.causal ? step_.workload.batch : step_.rows); }

absl::Status NodeCounter::Result() {
  if (node_.op == OpKind::kLmHead) {
    const ParamType& head = TypeOf("head");
    TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(head));
    out_.result_bytes = CompactBytes(node_.type.dtype, {out_.products[0].m, extents.out});
    return absl::OkStatus();
  }
  Exact elements = 1;
  for (const Axis& axis : node_.type.axes) {
    const std::optional<int64_t> number = axis.size.value();
    const std::optional<int64_t> size = number ? number : axis.size.Bind(step_.symbols);
    if (!size) return Error(1705, node_.path, absl::StrCat("axis ", axis.name, " has no size in a step"));
    elements = elements * *size;
  }
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

}  // namespace

absl::Status CountNode(const Step& step, const Node& node, absl::Span<const Param* const> params,
                       NodeCount& count) {
  return NodeCounter(step, node, params, count).Run();
}

}  // namespace twinforge
