#include "cost/certificate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "cost/certificate_chip.h"
#include "cost/certificate_graph.h"
#include "cost/certificate_numbers.h"
#include "cost/chip.h"
#include "cost/chip_file.h"
#include "cost/counts.h"
#include "cost/shape.h"

namespace twinforge {
namespace {

constexpr int kRungCount = 4;
constexpr absl::string_view kRungWords[kRungCount] = {"peak", "dtype", "shape", "memory"};
using RungTimes = std::array<Zeptoseconds, kRungCount>;

// The closed forms by name, as `check/` knows them too.
struct ClosedForm {
  absl::string_view name;
  absl::string_view text;
};
constexpr ClosedForm kForms[] = {
    {"folds",
     "rows = ceil(k/R) min(ceil(n/R) up(m,S), ceil(m/R) up(n,S)) count; tile = ceil(rows/(S U)) S U R R"},
    {"folds_scores", "rows = ceil(k/R) ceil(pairs/R) count; tile = ceil(rows/(S U)) S U R R"},
    {"folds_mix",
     "rows = min(ceil(n/R) ceil(pairs/R), up(n,S) ceil(pairs/(R R))) count; tile = ceil(rows/(S U)) S U R R"},
    {"tiles", "tile = min(up(m,a) up(n,b), up(n,a) up(m,b)) up(k,c) count; c = k_bits / wider bits"},
    {"tiles_scores", "tile = ceil(pairs/(a b)) a b up(k,c) count; c = k_bits / wider bits"},
    {"tiles_mix", "tile = min(up(pairs,a c) up(n,b), up(pairs,b c) up(n,a)) count; c = k_bits / wider bits"},
    {"padded",
     "bytes = min over dims i, j of up(i,L) up(j,t(j)) others bits / 8; one dim n: up(n, L t(n/L)) bits / 8; "
     "t(x) = least power of two from a word's elements on that is min(x,8) or more"},
    {"linear", "bytes = ceil(elements bits / 8)"},
};

absl::string_view KindWord(Product::Kind kind) {
  switch (kind) {
    case Product::Kind::kDense:
      return "dense";
    case Product::Kind::kScores:
      return "scores";
    case Product::Kind::kMix:
      return "mix";
  }
  return "";
}

const ClosedForm& FormOf(const Product& product, const ShapeRule& rule) {
  const int kind = static_cast<int>(product.kind);
  return kForms[rule.edge > 0 ? kind : 3 + kind];
}

// Nodes that count alike and have the same useful work; those that only the source has count nothing else.
struct OpGroup {
  std::string op;
  std::string path;  // of the first
  const NodeCount* count = nullptr;
  Natural128 useful = 0;
  int64_t nodes = 0;
};

Natural128 UsefulOf(const NodeCount& node) {
  Natural128 sum = 0;
  for (const Product& product : node.products) sum += static_cast<Natural128>(product.useful.value());
  return sum;
}

// In the order of first appearance.
class OpGroups {
 public:
  void Add(const Node& node, int32_t kind, const NodeCount* count, Natural128 useful) {
    const auto [at, added] = index_.try_emplace({kind, static_cast<int>(node.op), useful}, groups_.size());
    if (added) {
      const absl::string_view name = Info(node.op).name;
      groups_.push_back(
          {.op = std::string(name.data(), name.size()), .path = node.path, .count = count, .useful = useful});
    }
    ++groups_[at->second].nodes;
  }
  const std::vector<OpGroup>& all() const { return groups_; }

 private:
  std::vector<OpGroup> groups_;
  std::map<std::tuple<int32_t, int, Natural128>, size_t> index_;
};

OpGroups GroupsOf(const Graph& graph, const Graph* source, const StepCount& step,
                  const StepCount& source_step) {
  OpGroups groups;
  for (const Node& node : graph.nodes()) {
    const NodeCount& count = step.KindOf(node.id);
    const Node* same = source == nullptr ? nullptr : source->FindNode(node.path);
    const NodeCount* useful = same == nullptr ? nullptr : &source_step.KindOf(same->id);
    if (source == nullptr) useful = &count;
    groups.Add(node, step.nodes[node.id].kind, &count, useful == nullptr ? 0 : UsefulOf(*useful));
  }
  if (source == nullptr) return groups;
  for (const Node& node : source->nodes()) {
    const NodeCount& count = source_step.KindOf(node.id);
    if (!count.products.empty() && graph.FindNode(node.path) == nullptr)
      groups.Add(node, -1, nullptr, UsefulOf(count));
  }
  return groups;
}

// Axes of one device and what nobody asked for are left out.
std::string WorkloadLines(const Workload& w) {
  std::string text;
  const auto line = [&](const char* key, const auto& value) {
    absl::StrAppend(&text, "workload ", key, " ", value, "\n");
  };
  line("phase", w.phase == Phase::kDecode ? "decode" : "prefill");
  line("batch", w.batch);
  line("context", w.context);
  if (w.past > 0) line("past", w.past);
  line("tp", w.shards);
  if (w.dp > 1) line("dp", w.dp);
  if (w.ep > 1) line("ep", w.ep);
  if (w.pp > 1) line("pp", w.pp);
  line("routing", RoutingWord(w.routing));
  if (w.precision.weights) line("weights", w.precision.weights->name);
  if (w.precision.activations) line("activations", Name(*w.precision.activations));
  if (w.precision.cache) line("cache", Name(*w.precision.cache));
  return text;
}

class CertificateWriter {
 public:
  CertificateWriter(const ChipFigures& figures, const Workload& workload, std::string& text)
      : figures_(figures),
        routing_(EstimatedRouting(workload.routing)),
        devices_(static_cast<Natural128>(workload.devices())),
        text_(text) {}

  void Run(const Chip& chip, const StepCount& step, const std::vector<OpGroup>& groups) {
    std::set<DType> operands;
    for (const NodeCount& kind : step.kinds) {
      for (const Product& product : kind.products) operands.insert({product.left, product.right});
    }
    chip_ = WriteChip(chip, operands, text_);
    Forms(step);
    Held(step);
    for (const OpGroup& group : groups) Op(group);
    Spared();
    for (int rung = 0; rung < kRungCount; ++rung) {
      absl::StrAppend(&text_, "rung R", rung, " ", kRungWords[rung], " class B seconds ",
                      SecondsText(ladder_[rung]), "\n");
    }
  }

  void Estimates(const CertificateEstimates& estimates);
  const RungTimes& ladder() const { return ladder_; }

 private:
  void Forms(const StepCount& step) {
    std::set<absl::string_view> used = {figures_.is_tpu() ? "padded" : "linear"};
    for (const NodeCount& kind : step.kinds) {
      for (const Product& product : kind.products) used.insert(FormOf(product, figures_.shape).name);
    }
    for (const ClosedForm& form : kForms) {
      if (used.count(form.name) > 0)
        absl::StrAppend(&text_, "form ", form.name, " ", JsonQuoted(form.text), "\n");
    }
  }

  Natural128 BytesOf(const StoredArray& array) const {
    const Exact bytes =
        figures_.is_tpu() ? PaddedBytes(array.dtype, array.shape) : CompactBytes(array.dtype, array.shape);
    return static_cast<Natural128>(bytes.value());
  }

  static std::string ArrayText(const StoredArray& array) {
    return absl::StrCat(Name(array.dtype), " bits ", BitWidth(array.dtype), " shape ",
                        array.shape.empty() ? "scalar" : absl::StrJoin(array.shape, "x"));
  }

  // Arrays of one device that stay there: each line all that are alike.
  class Tally {
   public:
    void Add(const StoredArray& array) {
      const auto [at, added] = index_.try_emplace(ArrayText(array), rows_.size());
      if (added) rows_.push_back({array, 0});
      ++rows_[at->second].second;
    }
    void Add(const std::vector<StoredArray>& arrays) {
      for (const StoredArray& array : arrays) Add(array);
    }
    const std::vector<std::pair<StoredArray, int64_t>>& rows() const { return rows_; }

   private:
    std::vector<std::pair<StoredArray, int64_t>> rows_;
    std::map<std::string, size_t> index_;
  };

  Natural128 WriteTally(absl::string_view word, const Tally& tally) {
    Natural128 sum = 0;
    for (const auto& [array, count] : tally.rows()) {
      const Natural128 bytes = BytesOf(array);
      sum += bytes * static_cast<Natural128>(count);
      absl::StrAppend(&text_, word, " ", count, " ", ArrayText(array), " bytes ",
                      static_cast<uint64_t>(bytes), "\n");
    }
    return sum;
  }

  void Held(const StepCount& step) {
    Tally parameters;
    Tally cache;
    for (const NodeUse& node : step.nodes) {
      const NodeCount& kind = step.kinds[node.kind];
      for (size_t i = 0; i < kind.stored.size(); ++i) {
        if ((node.keeps >> i & 1) != 0) parameters.Add(kind.stored[i]);
      }
      cache.Add(kind.cache_kept);
    }
    const Natural128 held = WriteTally("parameter", parameters);
    const Natural128 kept = WriteTally("kept", cache);
    resident_ = held + kept <= chip_.on_chip;
    absl::StrAppend(&text_, "memory parameters ", static_cast<uint64_t>(held), " cache ",
                    static_cast<uint64_t>(kept), " usable ", static_cast<uint64_t>(chip_.usable), " on_chip ",
                    static_cast<uint64_t>(chip_.on_chip), " feasible ",
                    held + kept <= chip_.usable ? "yes" : "no", " resident ", resident_ ? "yes" : "no", "\n");
  }

  void Op(const OpGroup& group);
  // The step may find all on-chip memory full of what it reads; no node is then faster than without bytes.
  void Spared() {
    const Zeptoseconds spared{SecondsOf(chip_.on_chip, chip_.bandwidth).value + 1};
    absl::StrAppend(&text_, "spared ", static_cast<uint64_t>(chip_.on_chip), " seconds ", SecondsText(spared),
                    "\n");
    Natural128& memory = ladder_.back().value;
    memory = std::max(least_.value, memory > spared.value ? memory - spared.value : 0);
  }
  void ProductLine(const Product& product, RungTimes& times, Natural128& converts);
  Natural128 Arrays(absl::string_view word, const std::vector<StoredArray>& arrays) {
    Natural128 sum = 0;
    for (const StoredArray& array : arrays) {
      const Natural128 bytes = BytesOf(array);
      sum += bytes;
      absl::StrAppend(&text_, "  ", word, " ", ArrayText(array), " bytes ", static_cast<uint64_t>(bytes),
                      "\n");
    }
    return sum;
  }
  // Bytes that are no array of their own; `crossing` of them cross the bus.
  Natural128 Plain(absl::string_view word, Exact bytes) {
    if (bytes.value() > 0) absl::StrAppend(&text_, "  ", word, " ", bytes.value(), "\n");
    return static_cast<Natural128>(bytes.value());
  }
  Natural128 Spilled(absl::string_view word, Exact bytes) {
    const Natural128 all = Plain(word, bytes);
    return all > chip_.on_chip ? all - chip_.on_chip : 0;
  }

  const ChipFigures& figures_;
  const Routing routing_;  // of the estimates
  const Natural128 devices_;
  std::string& text_;
  CertificateChip chip_;
  bool resident_ = false;
  Zeptoseconds least_;  // of the step at R3, were all parameters and caches on chip
  RungTimes ladder_;
};

void CertificateWriter::ProductLine(const Product& product, RungTimes& times, Natural128& converts) {
  const MatmulMode& mode = **FindMode(figures_, product.left, product.right);
  const Natural128 rate = chip_.RateOf(mode.dtype);
  const auto tile = static_cast<Natural128>(TileMacs(product, figures_.shape).value());
  const auto useful = static_cast<Natural128>(product.useful.value());
  const auto macs = static_cast<Natural128>(Macs(product).value());
  TWIN_CHECK(useful <= macs * devices_, "no product is useful beyond what it computes");
  const Zeptoseconds dtype = SecondsOf(2 * useful, rate * devices_);
  const Zeptoseconds shape = SecondsOf(2 * tile, rate);
  const auto size = [](int64_t extent) { return static_cast<Natural128>(extent); };
  if (mode.converts_left) converts += size(product.m) * size(product.k) * size(product.count);
  if (mode.converts_right) converts += size(product.k) * size(product.n) * size(product.count);
  times[1].value += dtype.value;
  times[2].value += shape.value;
  absl::StrAppend(&text_, "  product ", KindWord(product.kind), " m ", product.m, " k ", product.k, " n ",
                  product.n, " count ", product.count);
  absl::StrAppend(&text_, product.kind == Product::Kind::kDense ? "" : absl::StrCat(" pairs ", product.pairs),
                  " left ", Name(product.left), " right ", Name(product.right), "\n    as ",
                  JsonQuoted(mode.dtype), " useful ", static_cast<uint64_t>(useful), " idle ",
                  static_cast<uint64_t>(macs * devices_ - useful), " dtype ", SecondsText(dtype));
  absl::StrAppend(&text_, " form ", FormOf(product, figures_.shape).name, " tile ",
                  static_cast<uint64_t>(tile), " shape ", SecondsText(shape), "\n");
}

void CertificateWriter::Op(const OpGroup& group) {
  absl::StrAppend(&text_, "op ", group.nodes, " ", JsonQuoted(group.op), " ", JsonQuoted(group.path),
                  " useful ", static_cast<uint64_t>(group.useful), "\n");
  if (group.count != nullptr && !group.count->note.empty())
    absl::StrAppend(&text_, "  note ", JsonQuoted(group.count->note), "\n");
  RungTimes times;
  times[0] = SecondsOf(2 * group.useful, chip_.best * devices_);
  Natural128 bytes = 0;
  Natural128 spilled = 0;
  if (group.count != nullptr) {
    const NodeCount& node = *group.count;
    Natural128 converts = 0;
    for (const Product& product : node.products) ProductLine(product, times, converts);
    if (converts > 0) absl::StrAppend(&text_, "  converts ", static_cast<uint64_t>(converts), "\n");
    if (converts > 0 && chip_.vector_rate > 0)
      times[1] = std::max(times[1], SecondsOf(converts, chip_.vector_rate));
    Natural128 stays = Arrays("weight", node.weights);
    stays += Arrays("cache", node.cache_read);
    stays += Plain("gathered", node.rows_read);
    stays += Plain("written", node.cache_written);
    for (const Exact& operand : node.operand_bytes) spilled += Spilled("operand", operand);
    spilled += Spilled("result", node.result_bytes);
    bytes = spilled + (resident_ ? 0 : stays);
  }
  times[3] = SecondsOf(bytes, chip_.bandwidth);
  absl::StrAppend(&text_, "  bytes ", static_cast<uint64_t>(bytes), " memory ", SecondsText(times[3]), "\n");
  absl::StrAppend(&text_, "  rungs");
  for (int rung = 0; rung < kRungCount; ++rung) {
    if (rung > 0) times[rung] = std::max(times[rung], times[rung - 1]);
    absl::StrAppend(&text_, " ", SecondsText(times[rung]));
    ladder_[rung].value += times[rung].value * static_cast<Natural128>(group.nodes);
  }
  least_.value +=
      std::max(times[2], SecondsOf(spilled, chip_.bandwidth)).value * static_cast<Natural128>(group.nodes);
  absl::StrAppend(&text_, "\n");
}

void CertificateWriter::Estimates(const CertificateEstimates& estimates) {
  const auto interval = [](absl::string_view low, absl::string_view mid, absl::string_view high) {
    return absl::StrCat("low ", low, " mid ", mid, " high ", high);
  };
  if (!estimates.rungs.empty()) absl::StrAppend(&text_, "estimates routing ", RoutingWord(routing_), "\n");
  for (const CertificateConstant& c : estimates.constants) {
    absl::StrAppend(&text_, "constant ", JsonQuoted(c.name), " ",
                    interval(RoundedDecimal(c.low), RoundedDecimal(c.mid), RoundedDecimal(c.high)), " unit ",
                    JsonQuoted(c.unit), " source ", JsonQuoted(c.source), "\n");
  }
  std::array<Zeptoseconds, 3> sum;
  sum.fill(ladder_.back());
  for (const CertificateEstimate& rung : estimates.rungs) {
    for (const CertificatePart& part : rung.parts) {
      const Zeptoseconds added[] = {SecondsOf(part.low), SecondsOf(part.mid), SecondsOf(part.high)};
      for (int i = 0; i < 3; ++i) sum[i].value += added[i].value;
      absl::StrAppend(&text_, "adds ", rung.rung, " ", JsonQuoted(part.what), " ",
                      interval(SecondsText(added[0]), SecondsText(added[1]), SecondsText(added[2])), "\n");
    }
    absl::StrAppend(&text_, "rung ", rung.rung, " ", rung.name, " class E ",
                    interval(SecondsText(sum[0]), SecondsText(sum[1]), SecondsText(sum[2])), "\n");
  }
}

// Both ladders follow from the same counts, one in floating point.
void CheckAgainstScore(const RungTimes& ladder, const Score& score) {
  // The score rounds each op down to 2^-50 of the step or less, the certificate each product to 10^-21 s.
  const double ops = static_cast<double>(score.ops.size());
  const double allowed = ops * (score.ladder.back().seconds * 0x1p-50 + 64e-21);
  for (int rung = 0; rung < kRungCount; ++rung) {
    const double printed = score.ladder[rung].seconds;
    TWIN_CHECK(std::abs(AsDouble(ladder[rung]) - printed) <= allowed,
               absl::StrCat("R", rung, " of the certificate is ", SecondsText(ladder[rung]),
                            ", and of the score ", printed));
  }
}

}  // namespace

absl::StatusOr<std::string> CertificateText(const Graph& graph, const Graph* useful, const std::string& chip,
                                            const Workload& workload, const CertificateEstimates& estimates) {
  if (workload.mixed() || workload.pp > 1 || workload.sp > 1)
    return Error(1703, "certificate", "carries no mixed step, pp or sp", "certify a step of tp, dp and ep");
  // Refuses whatever can be refused, counts beyond 64 bits too.
  TWIN_ASSIGN_OR_RETURN(const Score score, ScoreGraph(graph, useful, chip, workload));
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* figures, FindChipFacts(chip));
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), chip));
  TWIN_ASSIGN_OR_RETURN(const StepCount step, CountStep(graph, workload));
  StepCount source_step;
  if (useful != nullptr) {
    Workload whole = workload;
    whole.shards = 1;
    whole.ep = 1;
    TWIN_ASSIGN_OR_RETURN(source_step, CountStep(*useful, whole));
  }
  const std::string graph_hash = CertifiedHash(graph);
  const std::string workload_lines = WorkloadLines(workload);
  std::string text = absl::StrCat("twinforge certificate 1\ntool ", JsonQuoted(kVersion), "\nmodel sha256 ",
                                  useful == nullptr ? graph_hash : CertifiedHash(*useful), "\ntwin sha256 ",
                                  graph_hash, "\nchip sha256 ", Sha256Hex(figures->text),
                                  "\nworkload sha256 ", Sha256Hex(workload_lines), "\n", workload_lines);
  CertificateWriter writer(*figures, workload, text);
  writer.Run(*file, step, GroupsOf(graph, useful, step, source_step).all());
  CheckAgainstScore(writer.ladder(), score);
  writer.Estimates(estimates);
  absl::StrAppend(&text, "seal sha256 ", Sha256Hex(text), "\n");
  return text;
}

}  // namespace twinforge
