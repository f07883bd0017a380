// A mixture of experts as an operation of the house: its router, and one matrix of all experts for each
// layer.
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "importers/onnx/block_params.h"
#include "importers/onnx/blocks.h"
#include "weights/build.h"

namespace twinforge {
namespace {

Param ParamOf(WeightPtr program, std::vector<ParamAxis> axes, int lead, int in) {
  Param param;
  param.storage.orientation = Orientation::kInOut;
  param.type = {program->dtype(), std::move(axes), lead, in};
  param.program = std::move(program);
  return param;
}

// Which columns of each expert's output a flow holds: [.., out] whole, or the same places of each.
std::optional<std::vector<int64_t>> ColumnsOfExperts(const Flow& flow, const Term& experts) {
  if (flow.parts.size() != 1 || flow.parts[0].coef != nullptr || flow.factor != 1 || flow.shape.empty())
    return std::nullopt;
  const int64_t all = experts.shape.back(), width = flow.shape.back();
  if (width < 1 || flow.count() * all != experts.count() * width) return std::nullopt;
  std::vector<int64_t> columns;
  for (int64_t i = 0; i < flow.count(); ++i) {
    const int64_t column = IndexAt(flow.parts[0], i) - i / width * all;
    if (column < 0 || column >= all) return std::nullopt;
    if (i < width) columns.push_back(column);
    if (column != columns[i % width]) return std::nullopt;
  }
  return columns;
}

}  // namespace

// Each token's features, once or once for each of its experts.
bool BlockFinder::IsSpread(const Flow& x, int64_t times) const {
  if (x.plain()) return true;
  const int64_t all = trace_.Width(x.term);
  if (x.factor != 1 || x.parts.size() != 1 || x.parts[0].coef != nullptr ||
      x.count() != trace_.rows() * times * all)
    return false;
  for (int64_t i = 0; i < x.count(); ++i) {
    if (IndexAt(x.parts[0], i) != i / (times * all) * all + i % all) return false;
  }
  return true;
}

// The router of the mixture `id`: its kernel, how its scores become weights, and the block's input.
absl::Status BlockFinder::Route(int id, RaisedBlock& block) const {
  const Term& sum = trace_.term(id);
  const Term& down = trace_.term(sum.in[0]);
  MoeAttrs& attrs = *block.attrs.mutable_moe();
  const Flow& weights = sum.in[1];
  const Term* top = &trace_.term(weights);
  if (weights.factor != 1) attrs.set_routed_scale(weights.factor);
  if (top->kind == TermKind::kNormTop) {
    attrs.set_renormalize(true);
    top = &trace_.term(top->in[0]);
  } else if (top->kind == TermKind::kSoftmax && top->in[0].plain() &&
             top->in[0].shape.back() == down.shape[2]) {
    attrs.set_score(MoeAttrs::SOFTMAX_TOP);
    top = &trace_.term(top->in[0]);
  }
  if (top->kind != TermKind::kTop)
    return Fault(weights.term, "weights of experts that are not a router's best");
  const Term& places = trace_.term(down.in[1]);
  if (!SameFlow(places.in[0], top->in[0]) || places.width != top->width || top->width != down.shape[2])
    return Fault(id, "weights of other experts than those that are chosen");
  attrs.set_top_k(top->width);
  const Flow* scores = &top->in[0];
  const int64_t experts = down.kernel->shape()[0];
  if (attrs.score() == MoeAttrs::SOFTMAX_ALL) {
    const Term& softmax = trace_.term(*scores);
    if (softmax.kind != TermKind::kSoftmax || !scores->plain() || scores->shape.back() != experts)
      return Fault(scores->term, "a router's scores that are no softmax over its experts");
    scores = &softmax.in[0];
  }
  const Term& linear = trace_.term(*scores);
  if (linear.kind != TermKind::kLinear || !scores->plain() || scores->shape.back() != experts ||
      trace_.Width(scores->term) != experts)
    return Fault(scores->term, "a router that is no projection to its experts");
  TWIN_ASSIGN_OR_RETURN(const Piece router, PieceOf(*scores));
  block.inputs = {router.input};
  const ParamAxis expert = AxisNamed("expert", experts);
  block.params.emplace_back(
      "router", ParamOf(router.kernel, {AxisNamed("d_model", router.kernel->shape()[0]), expert}, 0, 1));
  if (router.bias != nullptr) block.params.emplace_back("router_bias", ParamOf(router.bias, {expert}, 0, 0));
  return absl::OkStatus();
}

// One layer of the experts of the mixture `id`, by what it makes.
absl::Status BlockFinder::AddExperts(int id, const std::string& slot, const Flow& flow,
                                     RaisedBlock& block) const {
  const Term& layer = trace_.term(flow);
  const Term& down = trace_.term(trace_.term(id).in[0]);
  if (layer.kind != TermKind::kExperts) return Fault(flow.term, "an expert's layer that is no product");
  if (!SameFlow(layer.in[1], down.in[1]) || layer.kernel->shape()[0] != down.kernel->shape()[0])
    return Fault(flow.term, "layers of different experts");
  const std::optional<std::vector<int64_t>> columns = ColumnsOfExperts(flow, layer);
  if (!columns) return Fault(flow.term, "what experts make is moved or scaled before it is used");
  const bool last = slot == "down";
  if (!last && (layer.in[0].term != block.inputs[0] || !IsSpread(layer.in[0], layer.shape[2])))
    return Fault(flow.term, "experts that see another value than their router");
  const ParamAxis expert = AxisNamed("expert", layer.kernel->shape()[0]);
  const ParamAxis in = AxisNamed(last ? "d_ff" : "d_model", layer.kernel->shape()[1]);
  const ParamAxis out = AxisNamed(last ? "d_model" : "d_ff", static_cast<int64_t>(columns->size()));
  block.params.emplace_back(slot, ParamOf(TakePlaces(layer.kernel, 2, *columns), {expert, in, out}, 1, 1));
  if (layer.bias != nullptr) {
    block.params.emplace_back(absl::StrCat(slot, "_bias"),
                              ParamOf(TakePlaces(layer.bias, 1, *columns), {expert, out}, 1, 0));
  }
  return absl::OkStatus();
}

// swish(min(gate, limit)) and clamp(value, +-limit) + offset: what the bounds are, and what is bound.
absl::Status BlockFinder::ReadBounds(const Flow*& gate, const Flow*& value, MlpAttrs& attrs) const {
  const auto bounds = [&](const Flow& flow) -> const Term* {
    const Term& term = trace_.term(flow);
    return term.kind == TermKind::kUnary && term.word == "Clip" && flow.plain() ? &term : nullptr;
  };
  const Term* upper = bounds(*gate);
  const bool swish = attrs.act() == SILU || attrs.act() == QUICK_GELU;
  if (upper == nullptr || !swish) return absl::OkStatus();
  const Term& shifted = trace_.term(*value);
  const bool shift = shifted.kind == TermKind::kAddNumber && value->plain();
  const Term* both = bounds(shift ? shifted.in[0] : *value);
  if (both == nullptr || both->number != upper->number || both->offset != -both->number ||
      upper->offset != -std::numeric_limits<double>::infinity() || !(upper->number > 0))
    return Fault(gate->term, "bounds of a gate that are not those of its value");
  attrs.set_clamp_limit(upper->number);
  attrs.set_clamp_alpha(attrs.act() == SILU ? 1 : 1.702);
  attrs.set_up_offset(shift ? shifted.number : 0);
  attrs.set_act(SILU);
  gate = &upper->in[0];
  value = &both->in[0];
  return absl::OkStatus();
}

absl::StatusOr<RaisedBlock> BlockFinder::Mixture(int id) const {
  const Flow& last = trace_.term(id).in[0];
  RaisedBlock block{.kind = BlockKind::kMoe};
  TWIN_RETURN_IF_ERROR(Route(id, block));
  MlpAttrs& expert = *block.attrs.mutable_moe()->mutable_expert();
  TWIN_ASSIGN_OR_RETURN(const int hidden, Whole(trace_.term(last).in[0]));
  const Term& inner = trace_.term(hidden);
  const Flow *gate = nullptr, *value = nullptr;
  if (inner.kind == TermKind::kGlu) {
    expert = *inner.glu;
    gate = &inner.in[0];
    value = &inner.in[1];
  } else if (inner.kind == TermKind::kMul) {
    const bool first = trace_.term(inner.in[0]).kind == TermKind::kAct;
    TWIN_ASSIGN_OR_RETURN(const int curve, Whole(inner.in[first ? 0 : 1]));
    if (trace_.term(curve).kind != TermKind::kAct)
      return Fault(hidden, "a product of two values, neither of them an activation");
    gate = &trace_.term(curve).in[0];
    expert.set_act(trace_.term(curve).act);
    value = &inner.in[first ? 1 : 0];
    TWIN_RETURN_IF_ERROR(ReadBounds(gate, value, expert));
  }
  if (gate == nullptr) return Fault(hidden, "experts without a gate");
  TWIN_RETURN_IF_ERROR(AddExperts(id, "gate", *gate, block));
  TWIN_RETURN_IF_ERROR(AddExperts(id, "up", *value, block));
  TWIN_RETURN_IF_ERROR(AddExperts(id, "down", last, block));
  return block;
}

}  // namespace twinforge
