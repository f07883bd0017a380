#include "importers/onnx/blocks.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "importers/onnx/block_params.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// A number that a file holds in 32 bits, as the decimal that it was written from.
double AsWritten(double x) {
  const auto single = static_cast<float>(x);
  if (static_cast<double>(single) != x) return x;
  char text[40];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text) - 1, single);
  *end.ptr = '\0';
  return std::strtod(text, nullptr);
}

Param VectorParam(WeightPtr program, std::vector<ParamAxis> axes) {
  Param param;
  param.type = {program->dtype(), std::move(axes), 0, 0};
  param.program = Reshape(std::move(program), param.type.shape());
  return param;
}

// A kernel [in.., out..] from a program [in, out].
Param KernelParam(WeightPtr program, std::vector<ParamAxis> in, std::vector<ParamAxis> out) {
  Param param;
  const bool turned = program->kind() == WeightKind::kTranspose;
  param.storage.orientation = turned ? Orientation::kOutIn : Orientation::kInOut;
  param.type = {program->dtype(), std::move(in), 0, 0};
  param.type.in = static_cast<int>(param.type.axes.size());
  for (ParamAxis& axis : out) param.type.axes.push_back(std::move(axis));
  param.program = Reshape(std::move(program), param.type.shape());
  return param;
}

// w of a scale that is stored as w for 1 + w.
std::pair<WeightPtr, double> SplitOffset(const WeightPtr& scale) {
  if (scale->kind() == WeightKind::kMap && scale->map_fn() == MapFn::kAdd &&
      scale->child(1)->kind() == WeightKind::kFill && scale->child(1)->fill() == 1)
    return {scale->child(0), 1};
  return {scale, 0};
}

}  // namespace

absl::Status BlockFinder::NotUnderstood(int node) const {
  std::string why = "no rule of a model's blocks holds for this operator";
  for (const NearMiss& miss : trace_.misses()) {
    if (miss.node == node) why = miss.message;
  }
  return Error(2010, absl::StrCat(trace_.model().path, ": ", trace_.NodeName(node)), why,
               "`inspect` and `eval` take the file as it is");
}

absl::Status BlockFinder::Fault(int term, absl::string_view why) const {
  const int node = trace_.term(term).node;
  const std::string place =
      node < 0 ? trace_.model().path : absl::StrCat(trace_.model().path, ": ", trace_.NodeName(node));
  return Error(2010, place, why, "`inspect` and `eval` take the file as it is");
}

absl::StatusOr<int> BlockFinder::Whole(const Flow& flow) const {
  if (flow.plain()) return flow.term;
  return Fault(flow.term, "what this makes is moved or scaled before a block takes it");
}

absl::StatusOr<BlockFinder::Piece> BlockFinder::PieceOf(int term,
                                                        const std::vector<int64_t>& features) const {
  const Term& linear = trace_.term(term);
  if (linear.kind != TermKind::kLinear) return Fault(term, "a block's operand is no projection");
  Piece piece;
  TWIN_ASSIGN_OR_RETURN(piece.input, Whole(linear.in[0]));
  piece.kernel = TakePlaces(linear.kernel, 1, features);
  if (linear.bias != nullptr) piece.bias = TakePlaces(linear.bias, 0, features);
  return piece;
}

absl::StatusOr<BlockFinder::Piece> BlockFinder::PieceOf(const Flow& flow) const {
  const std::optional<std::vector<int64_t>> features = trace_.Features(flow);
  if (!features || flow.factor != 1)
    return Fault(flow.term, "what this makes is moved or scaled before a block takes it");
  return PieceOf(flow.term, *features);
}

absl::StatusOr<RaisedBlock> BlockFinder::NormOf(int term) const {
  const Term& norm = trace_.term(term);
  if (norm.width != trace_.Width(term)) return Fault(term, "a norm over a part of the features");
  if (norm.kernel == nullptr) return Fault(term, "a norm without a scale");
  RaisedBlock block{.kind = BlockKind::kNorm, .rms = norm.word == "rms"};
  block.attrs.mutable_norm()->set_eps(AsWritten(norm.number));
  TWIN_ASSIGN_OR_RETURN(const int input, Whole(norm.in[0]));
  block.inputs = {input};
  auto [scale, offset] = SplitOffset(norm.kernel);
  block.attrs.mutable_norm()->set_offset(offset);
  block.params.emplace_back("scale", VectorParam(scale, {AxisNamed("d_model", norm.width)}));
  if (norm.bias != nullptr)
    block.params.emplace_back("bias", VectorParam(norm.bias, {AxisNamed("d_model", norm.width)}));
  return block;
}

// ---- attention

// Norms over the width of each head, between a projection and its turn: the projection takes the norm's
// place.
absl::Status BlockFinder::NormHeads(RaisedBlock& block, AttendTerm& attend) const {
  AttentionAttrs& attrs = *block.attrs.mutable_attention();
  const Term &q = trace_.term(attend.q.term), &k = trace_.term(attend.k.term);
  if (q.kind != TermKind::kNorm && k.kind != TermKind::kNorm) return absl::OkStatus();
  const bool alike = q.kind == k.kind && q.word == "rms" && k.word == "rms" && q.kernel != nullptr &&
                     k.kernel != nullptr && q.width == attend.q.width && k.width == q.width &&
                     q.number == k.number && q.in[0].plain() && k.in[0].plain();
  if (!alike) return Fault(attend.q.term, "norms of queries and keys that are not alike");
  for (const HeadPlaces* places : {&attend.q, &attend.k}) {
    for (size_t i = 0; i < places->features.size(); ++i) {
      if (places->features[i] % places->width != static_cast<int64_t>(i) % places->width)
        return Fault(places->term, "a norm over the places of several heads");
    }
  }
  const auto [q_scale, q_offset] = SplitOffset(q.kernel);
  const auto [k_scale, k_offset] = SplitOffset(k.kernel);
  if (q_offset != k_offset) return Fault(attend.q.term, "norms of queries and keys that are not alike");
  attrs.set_qk_norm_eps(AsWritten(q.number));
  attrs.set_qk_norm_offset(q_offset);
  const ParamAxis width = AxisNamed("head_dim", attend.q.width);
  block.params.emplace_back("q_norm", VectorParam(q_scale, {width}));
  block.params.emplace_back("k_norm", VectorParam(k_scale, {width}));
  attend.q.term = q.in[0].term;
  attend.k.term = k.in[0].term;
  return absl::OkStatus();
}

absl::StatusOr<RaisedBlock> BlockFinder::Attention(int id) const {
  const Term& linear = trace_.term(id);
  const Flow& mixed = linear.in[0];
  AttendTerm attend = *trace_.term(mixed).attend;
  RaisedBlock block{.kind = BlockKind::kAttention};
  *block.attrs.mutable_attention() = attend.attrs;
  TWIN_RETURN_IF_ERROR(Whole(mixed).status());
  TWIN_RETURN_IF_ERROR(NormHeads(block, attend));
  block.attrs.mutable_attention()->set_softcap(AsWritten(attend.attrs.softcap()));
  const ParamAxis width = AxisNamed("head_dim", attend.q.width);
  const std::pair<const char*, const HeadPlaces*> operands[] = {
      {"q", &attend.q}, {"k", &attend.k}, {"v", &attend.v}};
  for (const auto& [slot, places] : operands) {
    TWIN_ASSIGN_OR_RETURN(const Piece piece, PieceOf(places->term, places->features));
    if (block.inputs.empty()) block.inputs = {piece.input};
    if (block.inputs[0] != piece.input)
      return Fault(places->term, "queries, keys and values of different inputs");
    const ParamAxis heads = AxisNamed(*slot == 'q' ? "heads" : "kv_heads", places->heads);
    block.params.emplace_back(
        slot, KernelParam(piece.kernel, {AxisNamed("d_model", piece.kernel->shape()[0])}, {heads, width}));
    if (piece.bias != nullptr)
      block.params.emplace_back(absl::StrCat(slot, "_bias"), VectorParam(piece.bias, {heads, width}));
  }
  const ParamAxis heads = AxisNamed("heads", attend.q.heads),
                  d_model = AxisNamed("d_model", linear.kernel->shape()[1]);
  block.params.emplace_back("o", KernelParam(linear.kernel, {heads, width}, {d_model}));
  if (linear.bias != nullptr) block.params.emplace_back("o_bias", VectorParam(linear.bias, {d_model}));
  if (attend.sinks != nullptr) block.params.emplace_back("sinks", VectorParam(attend.sinks, {heads}));
  return block;
}

// ---- feed-forward

absl::StatusOr<RaisedBlock> BlockFinder::Feed(int id) const {
  const Term& down = trace_.term(id);
  TWIN_ASSIGN_OR_RETURN(const int hidden, Whole(down.in[0]));
  const Term& inner = trace_.term(hidden);
  const bool gated = inner.kind == TermKind::kMul;
  RaisedBlock block{.kind = gated ? BlockKind::kGatedMlp : BlockKind::kMlp};
  const Term* act = &inner;
  Flow up;
  if (gated) {
    const bool first = trace_.term(inner.in[0]).kind == TermKind::kAct;
    TWIN_ASSIGN_OR_RETURN(const int curve, Whole(inner.in[first ? 0 : 1]));
    act = &trace_.term(curve);
    up = inner.in[first ? 1 : 0];
  }
  if (act->kind != TermKind::kAct)
    return Fault(hidden, "a product of two values, neither of them an activation");
  block.attrs.mutable_mlp()->set_act(act->act);
  std::vector<std::pair<const char*, Flow>> parts;
  if (gated) parts.emplace_back("gate", act->in[0]);
  parts.emplace_back("up", gated ? up : act->in[0]);
  const ParamAxis d_ff = AxisNamed("d_ff", trace_.Width(hidden));
  for (const auto& [slot, flow] : parts) {
    TWIN_ASSIGN_OR_RETURN(const Piece piece, PieceOf(flow));
    if (block.inputs.empty()) block.inputs = {piece.input};
    if (block.inputs[0] != piece.input) return Fault(hidden, "gate and up of different inputs");
    block.params.emplace_back(
        slot, KernelParam(piece.kernel, {AxisNamed("d_model", piece.kernel->shape()[0])}, {d_ff}));
    if (piece.bias != nullptr)
      block.params.emplace_back(absl::StrCat(slot, "_bias"), VectorParam(piece.bias, {d_ff}));
  }
  const ParamAxis d_model = AxisNamed("d_model", down.kernel->shape()[1]);
  block.params.emplace_back("down", KernelParam(down.kernel, {d_ff}, {d_model}));
  if (down.bias != nullptr) block.params.emplace_back("down_bias", VectorParam(down.bias, {d_model}));
  return block;
}

// ---- embeddings

// At most three: tokens, positions and types.
int BlockFinder::LookupsIn(const Flow& flow) const {
  const Term& term = trace_.term(flow);
  if (term.kind == TermKind::kRows) return flow.parts.size() == 1 && flow.factor == 1 ? 1 : 0;
  return flow.plain() ? lookups_[flow.term] : 0;
}

BlockFinder::BlockFinder(const OnnxTrace& trace) : trace_(trace), lookups_(trace.terms().size(), 0) {
  for (size_t id = 0; id < lookups_.size(); ++id) {
    const Term& term = trace_.term(static_cast<int>(id));
    if (term.kind == TermKind::kEmbed || term.kind == TermKind::kRows) lookups_[id] = 1;
    if (term.kind != TermKind::kAdd) continue;
    const int first = LookupsIn(term.in[0]), second = LookupsIn(term.in[1]);
    if (first > 0 && second > 0 && first + second <= 3) lookups_[id] = first + second;
  }
}

absl::Status BlockFinder::AddLookup(const Flow& flow, RaisedBlock& block) const {
  const Term& term = trace_.term(flow);
  if (term.kind == TermKind::kAdd) {
    TWIN_RETURN_IF_ERROR(AddLookup(term.in[0], block));
    return AddLookup(term.in[1], block);
  }
  const int64_t width = term.kernel->shape()[1];
  std::string slot = "table", rows = "vocab";
  EmbeddingAttrs& attrs = *block.attrs.mutable_embedding();
  if (term.kind == TermKind::kEmbed) {
    const bool types = trace_.term(term.in[0]).word == "token_types";
    if (types) slot = "type_table", rows = "types";
    if (types && term.number != 1) return Fault(flow.term, "a scaled table of types");
    if (term.number != 1) attrs.set_scale(term.number);
  } else {
    const std::vector<int64_t> ids = Elements<int64_t>(term.known);
    int64_t offset = -1;
    bool places = true, zeros = true;
    for (int64_t i = 0; i < flow.count(); ++i) {
      const int64_t at = IndexAt(flow.parts[0], i), id = ids[at / width], s = i / width % trace_.probe().seq;
      if (i == 0) offset = id;
      zeros = zeros && id == 0 && at % width == i % width;
      places = places && id == offset + s && at % width == i % width;
    }
    if (!zeros && !places) return Fault(flow.term, "rows of a table by places that do not count up");
    slot = zeros ? "type_table" : "position_table";
    rows = zeros ? "types" : "positions";
    if (!zeros) attrs.set_position_offset(offset);
  }
  for (const auto& [taken, param] : block.params) {
    if (taken == slot) return Fault(flow.term, absl::StrCat("a second ", slot));
  }
  block.params.emplace_back(slot, KernelParam(term.kernel, {AxisNamed(rows.c_str(), term.kernel->shape()[0])},
                                              {AxisNamed("d_model", width)}));
  return absl::OkStatus();
}

absl::StatusOr<RaisedBlock> BlockFinder::Lookups(int id) const {
  RaisedBlock block{.kind = BlockKind::kEmbedding};
  TWIN_RETURN_IF_ERROR(AddLookup(Flow{.term = id, .shape = trace_.term(id).shape}, block));
  for (const auto& [slot, param] : block.params) {
    if (slot == "table") return block;
  }
  return Fault(id, "rows of tables of which none is chosen by tokens");
}

// ---- all

absl::StatusOr<RaisedBlock> BlockFinder::Of(int id) const {
  const Term& term = trace_.term(id);
  if (lookups_[id] > 0) return Lookups(id);
  switch (term.kind) {
    case TermKind::kNorm:
      return NormOf(id);
    case TermKind::kAdd: {
      RaisedBlock block{.kind = BlockKind::kAdd};
      for (const Flow& flow : term.in) {
        TWIN_ASSIGN_OR_RETURN(const int input, Whole(flow));
        block.inputs.push_back(input);
      }
      return block;
    }
    case TermKind::kMixture:
      return Mixture(id);
    case TermKind::kLinear: {
      const TermKind inner = trace_.term(term.in[0]).kind;
      if (inner == TermKind::kAttend) return Attention(id);
      if (inner == TermKind::kMul || inner == TermKind::kAct) return Feed(id);
      TWIN_ASSIGN_OR_RETURN(const int input, Whole(term.in[0]));
      RaisedBlock block{.kind = BlockKind::kLinear, .inputs = {input}};
      const ParamAxis in = AxisNamed("d_model", term.kernel->shape()[0]),
                      out = AxisNamed("d_out", term.kernel->shape()[1]);
      block.params.emplace_back("kernel", KernelParam(term.kernel, {in}, {out}));
      if (term.bias != nullptr) block.params.emplace_back("bias", VectorParam(term.bias, {out}));
      return block;
    }
    case TermKind::kAct: {
      TWIN_ASSIGN_OR_RETURN(const int input, Whole(term.in[0]));
      RaisedBlock block{.kind = BlockKind::kActivation, .inputs = {input}};
      block.attrs.mutable_activation()->set_act(term.act);
      return block;
    }
    default:
      return Fault(id, "what this makes is part of no block");
  }
}

absl::StatusOr<HeadBlock> BlockFinder::HeadOf(const Flow& flow) const {
  HeadBlock head;
  Flow logits = flow;
  LmHeadAttrs& attrs = *head.attrs.mutable_lm_head();
  const Term* top = &trace_.term(flow);
  if (top->kind == TermKind::kUnary && top->word == "Tanh" && flow.whole()) {
    attrs.set_softcap(AsWritten(flow.factor));
    logits = top->in[0];
    logits.factor *= flow.factor;
    top = &trace_.term(logits);
  }
  if (top->kind != TermKind::kLinear || !logits.whole()) {
    TWIN_ASSIGN_OR_RETURN(head.input, Whole(flow));
    head.head = false;
    return head;
  }
  if (std::abs(logits.factor - 1) > 1e-6) attrs.set_scale(AsWritten(logits.factor));
  TWIN_ASSIGN_OR_RETURN(head.input, Whole(top->in[0]));
  const ParamAxis d_model = AxisNamed("d_model", top->kernel->shape()[0]),
                  vocab = AxisNamed("vocab", top->kernel->shape()[1]);
  head.params.emplace_back("head", KernelParam(top->kernel, {d_model}, {vocab}));
  if (top->bias != nullptr) head.params.emplace_back("bias", VectorParam(top->bias, {vocab}));
  return head;
}

}  // namespace twinforge
