// Before                                After  pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS }
//   embed    [vocab=300 -> d_model]       [vocab=384~300 -> d_model]     84 zero rows
//   lm_head  [d_model -> vocab=300]       [d_model -> vocab=384~300]     84 zero columns
//   bias     [vocab=300]                  [vocab=384~300]                84 times -inf
//
// Why on a TPU. The vocabulary is the widest axis of the model and the one that is most often split over all
// devices; 151,669 words divide by nothing, and their last tile is ragged on every one of them.
//
// A zero column yields the logit 0, which is no small number: among live logits of -4 to -2 a phantom took 83
// % of the mass. So something must hide the new words, and hiding them is part of the rewrite: a head's bias
// takes -inf, the only mask that a plain runtime always applies; else `mask` says who does it:
// SUPPRESS_TOKENS (the exporter lists the ids in generation_config.json, which generate() honours) or
// REFERENCE (the reference code cuts the logits at the logical size, as the graph itself does). Tied
// parameters stay tied by themselves: the same padding of one program, transposed, is one program. An encoder
// has no head, hence nothing to hide.
//
// Refuses. Nothing masks. A bias of a type that has no infinity, or behind a soft cap, which turns
// -inf into a finite logit. A head and an embedding of different vocabularies.
//
// Fidelity. MOVED.
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

bool HasInfinity(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF8E5M2;
}

class PadVocabTransform : public Transform {
 public:
  PadVocabTransform(int64_t multiple, PadVocab::Mask mask) : multiple_(multiple), mask_(mask) {}

  absl::string_view name() const override { return "pad_vocab"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  // One site, the embedding's: head and embedding must change together.
  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) {
      return node.op == OpKind::kEmbedding ? Judge(graph, node) : Judgement::Other();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Graph& graph = rewriter.graph();
    const Node& node = graph.node(site.node);
    const Param embed = graph.param(node, "table");
    const int64_t vocab = embed.type.Get("vocab").size;
    const IndexMap map = TailPad(vocab, RoundUp(vocab, multiple_));
    const Node* head = Head(graph);
    MapAxis(rewriter, embed.role, "vocab", map);
    if (head == nullptr) return absl::OkStatus();
    MapAxis(rewriter, head->Role("head"), "vocab", map);
    if (head->Has("bias")) {
      MapAxis(rewriter, head->Role("bias"), "vocab", map, -std::numeric_limits<double>::infinity());
    }
    return absl::OkStatus();
  }

 private:
  static const Node* Head(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      if (node.op == OpKind::kLmHead) return &node;
    }
    return nullptr;
  }

  Judgement Judge(const Graph& graph, const Node& node) const {
    const int64_t vocab = AxisSize(graph, node, "vocab");
    const Node* head = Head(graph);
    if (head != nullptr && AxisSize(graph, *head, "vocab") != vocab) {
      return Judgement::Refused(absl::StrCat("it has ", vocab, " words and ", head->path, " has ",
                                             AxisSize(graph, *head, "vocab")));
    }
    if (vocab % multiple_ == 0) return Judgement::Native();
    Judgement growth = JudgeGrowth("vocab", RoundUp(vocab, multiple_));
    return head == nullptr || growth.refused() ? growth : JudgeMask(graph, *head);
  }

  Judgement JudgeMask(const Graph& graph, const Node& head) const {
    if (mask_ == PadVocab::SUPPRESS_TOKENS || mask_ == PadVocab::REFERENCE) {
      if (!head.Has("bias") || HasInfinity(graph.param(head, "bias").type.dtype)) return Judgement::Fits();
    }
    if (!head.Has("bias")) {
      return Judgement::Refused(absl::StrCat("nothing masks the padded logits: ", head.path, " has no bias; ",
                                             "mask: SUPPRESS_TOKENS or mask: REFERENCE would do"));
    }
    const DType dtype = graph.param(head, "bias").type.dtype;
    if (!HasInfinity(dtype)) {
      return Judgement::Refused(
          absl::StrCat("the bias of ", head.path, " is ", Name(dtype), ", which has no infinity"));
    }
    if (head.attrs->lm_head().softcap() != 0) {
      return Judgement::Refused(
          absl::StrCat("the soft cap of ", head.path, " turns a bias of -inf into a finite logit"));
    }
    return Judgement::Fits();
  }

  int64_t multiple_;
  PadVocab::Mask mask_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakePadVocab(const TransformStep& step,
                                                        const TransformContext& context) {
  const PadVocab& params = step.pad_vocab();
  TWIN_ASSIGN_OR_RETURN(const int64_t multiple, NumberOrFact("pad_vocab.multiple", params.multiple(),
                                                             params.multiple_of_chip(), context.facts));
  if (!PadVocab::Mask_IsValid(params.mask()))
    return Error(1505, "pad_vocab.mask", "is no mask that is known");
  return std::make_unique<PadVocabTransform>(multiple, params.mask());
}

}  // namespace twinforge
