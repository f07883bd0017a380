// Which operation of the house a term ends, with its parameters in the house's orientation.
#ifndef TWINFORGE_IMPORTERS_ONNX_BLOCKS_H_
#define TWINFORGE_IMPORTERS_ONNX_BLOCKS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "importers/onnx/trace.h"
#include "ir/graph.h"

namespace twinforge {

enum class BlockKind : uint8_t {
  kEmbedding,
  kNorm,
  kAdd,
  kLinear,
  kActivation,
  kAttention,
  kMlp,
  kGatedMlp,
  kMoe
};

struct RaisedBlock {
  BlockKind kind = BlockKind::kAdd;
  std::vector<int> inputs;  // terms
  OpAttrs attrs;
  std::vector<std::pair<std::string, Param>> params;  // by slot
  bool rms = true;                                    // of a norm
};

struct HeadBlock {
  int input = -1;
  bool head = true;  // false: the output is the input itself
  OpAttrs attrs;
  std::vector<std::pair<std::string, Param>> params;
};

class BlockFinder {
 public:
  explicit BlockFinder(const OnnxTrace& trace);

  // TF2010 where the term is none.
  absl::StatusOr<RaisedBlock> Of(int term) const;
  // What makes logits.
  absl::StatusOr<HeadBlock> HeadOf(const Flow& flow) const;
  // Of a node of the file: what was nearest to holding there.
  absl::Status NotUnderstood(int node) const;

 private:
  // Columns of one projection: y = x kernel + bias.
  struct Piece {
    int input = -1;
    WeightPtr kernel, bias;
  };
  absl::StatusOr<Piece> PieceOf(int term, const std::vector<int64_t>& features) const;
  absl::StatusOr<Piece> PieceOf(const Flow& flow) const;
  absl::StatusOr<int> Whole(const Flow& flow) const;
  absl::StatusOr<RaisedBlock> Attention(int term) const;
  absl::Status NormHeads(RaisedBlock& block, AttendTerm& attend) const;
  absl::StatusOr<RaisedBlock> Feed(int term) const;
  absl::StatusOr<RaisedBlock> Mixture(int term) const;
  absl::Status Route(int term, RaisedBlock& block) const;
  absl::Status AddExperts(int term, const std::string& slot, const Flow& flow, RaisedBlock& block) const;
  absl::Status ReadBounds(const Flow*& gate, const Flow*& value, MlpAttrs& attrs) const;
  bool IsSpread(const Flow& x, int64_t times) const;
  absl::StatusOr<RaisedBlock> NormOf(int term) const;
  absl::StatusOr<RaisedBlock> Lookups(int term) const;
  int LookupsIn(const Flow& flow) const;
  absl::Status AddLookup(const Flow& flow, RaisedBlock& block) const;
  absl::Status Fault(int term, absl::string_view why) const;

  const OnnxTrace& trace_;
  std::vector<int> lookups_;  // by term: of how many tables it adds rows; 0 where it does anything else
};

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_BLOCKS_H_
