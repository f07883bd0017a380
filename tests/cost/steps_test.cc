// Mixed steps, and steps over pipeline stages, parts of sequences and slices: by hand, and by laws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "cost/certificate.h"
#include "cost/chip.h"
#include "cost/counts.h"
#include "cost/forecast.h"
#include "cost/memory.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Collective::Kind;
using Mixer = ModelSizes::Mixer;

StepCount Count(const Graph& graph, const Workload& workload) {
  absl::StatusOr<StepCount> step = CountStep(graph, workload);
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? *std::move(step) : StepCount();
}

const NodeCount& At(const Graph& graph, const StepCount& step, absl::string_view path) {
  return step.KindOf(graph.FindNode(path)->id);
}

int64_t Bytes(const std::vector<StoredArray>& arrays) {
  Exact bytes;
  for (const StoredArray& array : arrays) bytes += CompactBytes(array.dtype, array.shape);
  return bytes.value();
}

int64_t Useful(const NodeCount& node) {
  int64_t macs = 0;
  for (const Product& product : node.products) macs += product.useful.value();
  return macs;
}

int64_t Useful(const Graph& graph, const StepCount& step) {
  int64_t macs = 0;
  for (const Node& node : graph.nodes()) macs += Useful(step.KindOf(node.id));
  return macs;
}

StepTerms Terms(const Graph& graph, const std::string& chip, const Workload& workload) {
  absl::StatusOr<StepTerms> terms = TermsOf(**FindChipFacts(chip), graph, workload);
  EXPECT_TRUE(terms.ok()) << terms.status();
  return terms.ok() ? *std::move(terms) : StepTerms();
}

Forecast Of(const Graph& graph, const std::string& chip, const Workload& w, const std::string& stack = "") {
  absl::StatusOr<Forecast> forecast = ForecastStep(graph, nullptr, chip, w, stack, "bf16");
  EXPECT_TRUE(forecast.ok()) << forecast.status();
  return forecast.ok() ? *std::move(forecast) : Forecast();
}

template <typename T>
Diagnostic Refusal(const absl::StatusOr<T>& result) {
  EXPECT_TRUE(DiagnosticOf(result.status()).has_value()) << result.status();
  return DiagnosticOf(result.status()).value_or(Diagnostic());
}

constexpr Workload kDecoders = {.batch = 6, .context = 300};

// ---- mixed steps

TEST(Mixed, IsDecodeAndPrefillWithTheParametersReadOnce) {
  for (const bool latent : {false, true}) {
    const Graph graph = MakeModel({.layers = 2, .window = latent ? 0 : 128, .kv_lora = latent ? 32 : 0});
    Workload mixed = kDecoders;
    mixed.chunk = 100;
    mixed.past = 40;
    const Workload prompt = {.phase = Phase::kPrefill, .batch = 1, .context = 100, .past = 40};
    const StepCount both = Count(graph, mixed), a = Count(graph, kDecoders), b = Count(graph, prompt);
    EXPECT_EQ(Useful(graph, both), Useful(graph, a) + Useful(graph, b));
    for (const Node& node : graph.nodes()) {
      const NodeCount &one = both.KindOf(node.id), &x = a.KindOf(node.id), &y = b.KindOf(node.id);
      EXPECT_EQ(Bytes(one.weights), Bytes(x.weights)) << node.path;
      EXPECT_EQ(Bytes(one.cache_read), Bytes(x.cache_read) + Bytes(y.cache_read)) << node.path;
      EXPECT_EQ(Bytes(one.cache_kept), Bytes(x.cache_kept) + Bytes(y.cache_kept)) << node.path;
      EXPECT_EQ(one.cache_written.value(), x.cache_written.value() + y.cache_written.value()) << node.path;
      EXPECT_EQ(one.result_bytes.value(), x.result_bytes.value() + y.result_bytes.value()) << node.path;
    }
  }
}

TEST(Mixed, ProjectsAllRowsInOneProduct) {
  const Graph graph = MakeModel({});
  Workload mixed = kDecoders;
  mixed.chunk = 100;
  const StepCount step = Count(graph, mixed);
  EXPECT_EQ(At(graph, step, "layers.0.mlp").products[0].m, 106);
  EXPECT_EQ(At(graph, step, "lm_head").products[0].m, 7) << "the prompt's last place has logits";
  // Each group of devices has a prompt of its own.
  mixed.dp = 2;
  const StepCount two = Count(graph, mixed);
  EXPECT_EQ(At(graph, two, "layers.0.mlp").products[0].m, 103);
  EXPECT_EQ(Useful(At(graph, two, "layers.0.mlp")), 3 * 64 * 96 * 206);
}

TEST(Mixed, TakesNoMoreThanItsPartsApartAndNoLessThanEither) {
  const Graph graph = MakeModel(Llama8B());
  for (const char* chip : {"v6e", "h100_sxm"}) {
    Workload mixed = {.batch = 16, .context = 2048};
    const Forecast decode = Of(graph, chip, mixed);
    mixed.chunk = 512;
    const Forecast both = Of(graph, chip, mixed);
    const Forecast prefill = Of(graph, chip, {.phase = Phase::kPrefill, .context = 512});
    for (const size_t rung : {size_t{3}, size_t{8}}) {
      const auto at = [&](const Forecast& f) { return f.score.ladder[rung].seconds; };
      EXPECT_LT(at(both), at(decode) + at(prefill)) << chip;
      EXPECT_GT(at(both), std::max(at(decode), at(prefill))) << chip;
    }
  }
}

TEST(Mixed, HoldsThePromptBesideTheSequences) {
  const Graph graph = MakeModel({.layers = 2});  // 256 bytes of each token
  Workload mixed = {.batch = 3, .context = 99, .past = 60, .chunk = 20};
  const StepTerms terms = Terms(graph, "h100_sxm", mixed);
  EXPECT_EQ(terms.cache_bytes.value(), (3 * 100 + 80) * 256);
  ChipFigures chip = **FindChipFacts("h100_sxm");
  chip.memory_bytes = terms.parameter_bytes.value() + 1000 * 256;
  const Capacity c = CapacityOf(chip, terms, 100, 1, 1);
  EXPECT_EQ(c.kv_tokens, 1000);
  EXPECT_EQ(c.sequences, 9) << "80 places are the prompt's";
}

TEST(Mixed, IsRefusedWhereItHasNoMeaning) {
  EXPECT_EQ(Refusal(CountStep(MakeModel({.causal = false}), {.context = 9, .chunk = 4})).code, 1705);
  const Graph graph = MakeModel({.layers = 2, .positions = 64});
  EXPECT_EQ(Refusal(CountStep(graph, {.phase = Phase::kPrefill, .context = 9, .chunk = 4})).code, 1703);
  const Diagnostic far = Refusal(CountStep(graph, {.context = 9, .past = 60, .chunk = 5}));
  EXPECT_EQ(far.code, 1703);
  EXPECT_THAT(far.hint, HasSubstr("at most 64 together"));
  EXPECT_TRUE(CountStep(graph, {.context = 9, .past = 59, .chunk = 5}).ok());
  EXPECT_EQ(Refusal(CountStep(graph, {.batch = 4, .pp = 2, .chunk = 5, .microbatches = 2})).code, 1703);
}

// ---- chunked attention

TEST(ChunkedPairs, EqualCountingThemOneByOne) {
  for (int64_t past = 0; past < 9; ++past) {
    for (int64_t fresh = 1; fresh < 12; ++fresh) {
      for (int64_t window = 0; window < 6; ++window) {
        for (int64_t chunk = 0; chunk < 7; ++chunk) {
          int64_t pairs = 0;
          for (int64_t q = past; q < past + fresh; ++q) {
            for (int64_t k = 0; k <= q; ++k)
              pairs += (window == 0 || q - k < window) && (chunk == 0 || q / chunk == k / chunk);
          }
          ASSERT_EQ(ChunkedPairs(past, fresh, window, chunk).value(), pairs)
              << past << " " << fresh << " " << window << " " << chunk;
        }
      }
    }
  }
}

TEST(ChunkedAttention, ReadsItsOwnChunkOnly) {
  const Graph graph = MakeModel({.chunk = 64});
  const NodeCount node = At(graph, Count(graph, {.batch = 3, .context = 150}), "layers.0.attn");
  EXPECT_THAT(node.cache_read[0].shape, ElementsAre(3, 2, 150 - 128, 16));
  EXPECT_THAT(node.cache_kept[0].shape, ElementsAre(3, 2, 23, 16));
  EXPECT_EQ(node.products[4].n, 23);
}

// ---- recurrences

TEST(Recurrences, OfADecodeStepByHand) {
  const int64_t d = 64, heads = 4, head_dim = 16, groups = 2, state = 24, taps = 4, batch = 5;
  const Workload w = {.batch = batch, .context = 1000};
  const Graph ssm = MakeModel({.mixer = Mixer::kStateSpace});
  const NodeCount a = At(ssm, Count(ssm, w), "layers.0.ssm");
  const int64_t inner = heads * head_dim, shared = groups * state;
  EXPECT_EQ(Useful(a), batch * (d * (3 * inner + 2 * shared + heads) + inner * state));
  EXPECT_EQ(Bytes(a.cache_read), batch * ((taps - 1) * (inner + 2 * shared) * 2 + inner * state * 4));
  EXPECT_EQ(Bytes(a.cache_kept), Bytes(a.cache_read));
  EXPECT_EQ(a.cache_written.value(), batch * ((inner + 2 * shared) * 2 + inner * state * 4));
  EXPECT_TRUE(a.state);

  const Graph delta = MakeModel({.mixer = Mixer::kDeltaRule});
  const NodeCount b = At(delta, Count(delta, w), "layers.0.delta");
  EXPECT_EQ(Useful(b), batch * (d * (3 * inner + 2 * shared + 2 * heads) + 2 * inner * state));
  EXPECT_EQ(Bytes(b.cache_kept), batch * ((taps - 1) * (inner + 2 * shared) * 2 + inner * state * 4));

  const Graph conv = MakeModel({.mixer = Mixer::kShortConv});
  const NodeCount c = At(conv, Count(conv, w), "layers.0.conv");
  EXPECT_EQ(Useful(c), batch * 4 * d * d) << "taps are no matrix product";
  EXPECT_EQ(Bytes(c.cache_read), batch * (taps - 1) * d * 2);
  EXPECT_EQ(c.cache_written.value(), batch * d * 2);
}

TEST(Recurrences, TakeTheFormWithFewerOperations) {
  const Graph graph = MakeModel({.mixer = Mixer::kStateSpace});
  const int64_t dense = 64 * (3 * 64 + 2 * 48 + 4);
  for (const int64_t fresh : {1, 5, 27, 28, 5000}) {
    const Workload w = {.phase = Phase::kPrefill, .batch = 2, .context = fresh};
    const int64_t pairs = fresh * (fresh + 1) / 2;
    const int64_t by_pairs = pairs * (2 * 24 + 4 * 16), by_steps = fresh * 4 * 16 * 24;
    EXPECT_EQ(Useful(At(graph, Count(graph, w), "layers.0.ssm")),
              2 * (fresh * dense + std::min(by_pairs, by_steps)));
  }
  Workload later = {.phase = Phase::kPrefill, .batch = 2, .context = 5, .past = 9};
  EXPECT_EQ(Useful(At(graph, Count(graph, later), "layers.0.ssm")), 2 * 5 * (dense + 4 * 16 * 24));
}

TEST(Recurrences, KeepAStateThatLongerSequencesDoNotGrow) {
  for (const Mixer mixer : {Mixer::kShortConv, Mixer::kStateSpace, Mixer::kDeltaRule}) {
    const Graph graph = MakeModel({.layers = 1, .mixer = mixer});
    const StepTerms terms = Terms(graph, "h100_sxm", {.batch = 8, .context = 100});
    EXPECT_EQ(terms.cache_bytes.value(),
              Terms(graph, "h100_sxm", {.batch = 8, .context = 9}).cache_bytes.value());
    const int64_t each = terms.cache_bytes.value() / 8;
    ChipFigures chip = **FindChipFacts("h100_sxm");
    chip.memory_bytes = terms.parameter_bytes.value() + 11 * each + each - 1;
    const Capacity c = CapacityOf(chip, terms, 101, 1, 16);
    EXPECT_EQ(c.sequences, 11);
    EXPECT_EQ(c.kv_tokens, 0) << "no place takes room";
    EXPECT_TRUE(c.feasible);
  }
  // Beside attention: a state and 100 places of 128 bytes each.
  const Graph hybrid = MakeModel({.layers = 2, .mixer = Mixer::kShortConv});
  const StepTerms terms = Terms(hybrid, "h100_sxm", {.batch = 8, .context = 99});
  const int64_t state = 3 * 64 * 2, each = state + 100 * 128;
  EXPECT_EQ(terms.cache_bytes.value(), 8 * each);
  ChipFigures chip = **FindChipFacts("h100_sxm");
  chip.memory_bytes = terms.parameter_bytes.value() + 10 * each;
  EXPECT_EQ(CapacityOf(chip, terms, 100, 1, 1).sequences, 10);
  chip.memory_bytes -= 1;
  EXPECT_EQ(CapacityOf(chip, terms, 100, 1, 1).sequences, 9);
}

TEST(Recurrences, AreSplitByHeadsAndChannelsAndNotAlongTheSequence) {
  for (const Mixer mixer : {Mixer::kShortConv, Mixer::kStateSpace, Mixer::kDeltaRule}) {
    const Graph graph = MakeModel({.mixer = mixer});
    const StepTerms one = Terms(graph, "h100_sxm", {.batch = 8}),
                    four = Terms(graph, "h100_sxm", {.batch = 8, .shards = 4});
    EXPECT_LT(four.cache_bytes.value(), one.cache_bytes.value());
    EXPECT_EQ(four.kinds.size(), one.kinds.size());
    Workload w = {.batch = 8};
    w.sp = 2;
    const Diagnostic no = Refusal(CountStep(graph, w));
    EXPECT_EQ(no.code, 1702);
    EXPECT_THAT(no.message, HasSubstr("along its sequence"));
  }
  const Graph odd = MakeModel({.heads = 12, .mixer = Mixer::kStateSpace, .groups = 3});
  EXPECT_EQ(Refusal(CountStep(odd, {.shards = 4})).code, 1702);
}

// ---- pipeline stages

TEST(Stages, ShareLayersEvenly) {
  EXPECT_EQ(LayerOfPath("layers.12.attn"), 12);
  EXPECT_EQ(LayerOfPath("embed"), std::nullopt);
  EXPECT_EQ(LayerOfPath("layers.x.attn"), std::nullopt);
  for (int64_t layers = 1; layers < 20; ++layers) {
    for (int64_t stages = 1; stages <= layers; ++stages) {
      std::vector<int64_t> sizes(stages);
      for (int64_t layer = 0; layer < layers; ++layer) ++sizes[StageOfLayer(layer, layers, stages)];
      EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), CeilDiv(layers, stages));
      EXPECT_GE(*std::min_element(sizes.begin(), sizes.end()), layers / stages);
    }
  }
}

TEST(Stages, KeepTheirOwnPartAndTheirOwnCopyOfATiedTable) {
  for (const bool tied : {false, true}) {
    const Graph graph = MakeModel({.layers = 4, .tied = tied});
    const Workload whole = {.batch = 8, .context = 99};
    Workload w = whole;
    w.pp = 2;
    const StepTerms one = Terms(graph, "h100_sxm", whole), two = Terms(graph, "h100_sxm", w);
    ASSERT_EQ(two.stages.size(), 2u);
    const int64_t table = 2 * 320 * 64;
    EXPECT_EQ((two.stages[0].parameter_bytes + two.stages[1].parameter_bytes).value(),
              one.parameter_bytes.value() + (tied ? table : 0));
    EXPECT_EQ(two.stages[0].cache_bytes.value(), one.cache_bytes.value() / 2);
    EXPECT_EQ(two.cache_bytes.value(), one.cache_bytes.value() / 2);
    w.microbatches = 4;
    EXPECT_EQ(Terms(graph, "h100_sxm", w).cache_bytes.value(), one.cache_bytes.value() / 2)
        << "of all microbatches";
  }
}

// A step crosses every stage, and the slowest stage has to run all microbatches.
TEST(Stages, BoundAStepFromBelow) {
  ModelSizes sizes = Llama8B();
  sizes.layers = 9;
  const Graph graph = MakeModel(sizes);
  for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
    for (const int64_t parts : {1, 2, 4, 8}) {
      Workload w = {.phase = phase, .batch = 16, .context = 500};
      w.pp = 4;
      w.microbatches = parts;
      const StepTerms terms = Terms(graph, "v6e", w);
      double way = 0, slowest = 0;
      for (const StageTerms& stage : terms.stages) {
        way += StageBoundSeconds(terms, stage);
        slowest = std::max(slowest, StageBoundSeconds(terms, stage));
      }
      const double bound = std::max(way, static_cast<double>(parts) * slowest);
      const Forecast f = Of(graph, "v6e", w);
      EXPECT_NEAR(f.bound / bound, 1, 1e-9);
      EXPECT_NEAR(BoundSeconds(terms) / bound, 1, 1e-9);
      if (phase == Phase::kDecode) continue;
      // Alone, the others follow the first through the slowest stage.
      EXPECT_GE(f.score.ladder[8].seconds, way + static_cast<double>(parts - 1) * slowest);
    }
  }
}

TEST(Stages, OfOneMicrobatchTakeAsLongAsOneStage) {
  const Graph graph = MakeModel(Llama8B());
  Workload w = {.batch = 16, .context = 2048};
  const Score one = *ScoreGraph(graph, nullptr, "v6e", w);
  w.pp = 4;
  const Score four = *ScoreGraph(graph, nullptr, "v6e", w);
  for (int rung = 0; rung < 3; ++rung) EXPECT_EQ(four.ladder[rung].seconds, one.ladder[rung].seconds);
  // Four devices have four times the on-chip memory that may hold what is read.
  const double spared = Terms(graph, "v6e", w).spared;
  EXPECT_GT(spared, 0);
  EXPECT_NEAR(four.ladder[3].seconds, one.ladder[3].seconds - 3 * spared, 1e-12);
  EXPECT_LT(four.parameter_bytes, one.parameter_bytes / 3);
  w.microbatches = 8;
  const Score overlapped = *ScoreGraph(graph, nullptr, "v6e", w);
  EXPECT_GT(overlapped.ladder[3].seconds, four.ladder[3].seconds)
      << "each microbatch reads the parameters anew";
  int64_t a = 0, b = 0;
  for (const OpCount& op : one.ops) a += op.useful_flops;
  for (const OpCount& op : overlapped.ops) b += op.useful_flops;
  EXPECT_EQ(a, b);
}

TEST(Stages, AreRefusedWhereTheyHoldNothing) {
  const Graph graph = MakeModel({.layers = 2});
  const auto of = [&](int64_t pp, int64_t parts, int64_t batch) {
    Workload w = {.batch = batch};
    w.pp = pp;
    w.microbatches = parts;
    return Refusal(CountStep(graph, w));
  };
  EXPECT_EQ(of(3, 1, 4).code, 1702);
  EXPECT_THAT(of(3, 1, 4).message, HasSubstr("3 stages for 2 layers"));
  EXPECT_THAT(of(3, 1, 4).hint, HasSubstr("at most 2"));
  EXPECT_EQ(of(2, 3, 4).code, 1703);
  EXPECT_THAT(of(2, 3, 4).hint, HasSubstr("a batch of 6"));
  EXPECT_EQ(of(1, 2, 4).code, 1703);
  Workload train = {.phase = Phase::kPrefill, .context = 8, .training = Training{}};
  train.pp = 2;
  EXPECT_EQ(Refusal(CountStep(graph, train)).code, 1702);
  Workload w;
  w.pp = 2;
  EXPECT_EQ(Refusal(ForecastServing(graph, "v6e", w, {}, "vllm", "bf16")).code, 1702);
}

// ---- parts of a sequence

TEST(SequenceParts, ShareWorkAndCache) {
  const Graph graph = MakeModel({});
  const Workload prefill = {.phase = Phase::kPrefill, .batch = 2, .context = 64};
  Workload w = prefill;
  w.sp = 4;
  const NodeCount whole = At(graph, Count(graph, prefill), "layers.0.attn");
  const NodeCount part = At(graph, Count(graph, w), "layers.0.attn");
  EXPECT_EQ(Useful(part), Useful(whole));
  EXPECT_EQ(part.products[0].m, 2 * 16);
  EXPECT_EQ(part.products[4].pairs, 64 * 65 / 2 / 4 * 2);
  EXPECT_EQ(4 * Bytes(part.cache_kept), Bytes(whole.cache_kept));
  ASSERT_EQ(part.collectives.size(), 1u);
  EXPECT_EQ(part.collectives[0].kind, Kind::kAllGather);
  EXPECT_EQ(part.collectives[0].bytes.value(), 2 * 16 * (2 * 2 * 16 * 2)) << "keys and values of 16 places";
  // One token to a sequence cannot be split; its keys are.
  Workload decode = {.batch = 2, .context = 63};
  const NodeCount all = At(graph, Count(graph, decode), "layers.0.attn");
  decode.sp = 4;
  const NodeCount own = At(graph, Count(graph, decode), "layers.0.attn");
  EXPECT_EQ(own.products[0].m, 2);
  EXPECT_EQ(own.products[4].n, 16);
  EXPECT_EQ(Bytes(own.weights), Bytes(all.weights));
  EXPECT_EQ(own.collectives[0].kind, Kind::kAllReduce);
  EXPECT_EQ(own.collectives[0].bytes.value(), 2 * 4 * (16 + 2) * 4);
}

TEST(SequenceParts, OfAWindowAskTheirNeighbour) {
  const Graph graph = MakeModel({.window = 9});
  Workload w = {.phase = Phase::kPrefill, .batch = 2, .context = 64};
  w.sp = 4;
  const NodeCount node = At(graph, Count(graph, w), "layers.0.attn");
  EXPECT_EQ(node.collectives[0].kind, Kind::kSend);
  EXPECT_EQ(node.collectives[0].bytes.value(), 2 * 8 * (2 * 2 * 16 * 2));
}

// ---- slices

TEST(Slices, MeetOverTheNetworkBetweenHosts) {
  const Graph graph = MakeModel({.layers = 2});
  Workload train = {.phase = Phase::kPrefill, .batch = 16, .context = 64, .shards = 2, .dp = 4};
  train.training = Training{};
  const StepTerms near = Terms(graph, "v5p", train);
  train.dcn.dp = true;
  const StepTerms far = Terms(graph, "v5p", train);
  ASSERT_TRUE(near.network.ok() && far.network.ok()) << near.network << far.network;
  double a = 0, b = 0;
  for (const NodeTerms& node : near.kinds) a += node.exchange;
  for (const NodeTerms& node : far.kinds) b += node.exchange;
  EXPECT_GT(b, 5 * a);
  // No source says what v6e has between hosts: bounds stand, an estimate is refused.
  const StepTerms unknown = Terms(graph, "v6e", train);
  EXPECT_EQ(DiagnosticOf(unknown.network)->code, 1706);
  EXPECT_EQ(Refusal(ForecastStep(graph, nullptr, "v6e", train, "", "bf16")).code, 1706);
}

// ---- what an engine pads

TEST(Padding, OfPagesBucketsAndExpertsIsTheLastRungs) {
  const Graph graph = MakeModel({.layers = 2, .d_model = 512, .d_ff = 2048, .experts = 64, .top_k = 2});
  Workload w = {.batch = 7200, .context = 1001, .routing = Routing::kExpected};
  w.dp = w.ep = 8;
  const auto moe = [&](const Forecast& f) { return f.score.attribution[graph.FindNode("layers.0.moe")->id]; };
  const Forecast plain = Of(graph, "v6e", w), engine = Of(graph, "v6e", w, "vllm");
  for (const Forecast* f : {&plain, &engine}) EXPECT_GT(moe(*f)[8], 0) << "uneven without an engine too";
  w.dp = w.ep = 1;
  EXPECT_EQ(moe(Of(graph, "v6e", w))[8], 0);
  Workload alone = {.batch = 72, .context = 1001};
  EXPECT_TRUE(Of(graph, "v6e", alone).terms.kinds[0].padded == nullptr) << "nothing to pad";
  Workload padded = alone;
  padded.padding = {.page = 16, .tokens_from = 16};
  const StepCount step = Count(graph, padded);
  EXPECT_EQ(At(graph, step, "layers.0.attn").products[0].m, 128);
  EXPECT_THAT(At(graph, step, "layers.0.attn").cache_read[0].shape, ElementsAre(72, 2, 1008, 16));
  EXPECT_EQ(At(graph, step, "layers.0.attn").cache_kept[0].shape[2], 1002) << "capacity counts pages itself";
  EXPECT_EQ(Useful(graph, step), Useful(graph, Count(graph, alone)));
}

TEST(Padding, GivesTheFullestOfManyDevicesMoreThanItsShare) {
  const Graph graph = MakeModel({.experts = 64, .top_k = 2});
  Workload w = {.batch = 512, .context = 10, .routing = Routing::kExpected};
  w.dp = w.ep = 16;
  const auto rows = [&] {
    int64_t sum = 0;
    for (const Product& product : At(graph, Count(graph, w), "layers.0.moe").products) {
      if (product.n == 96) sum += product.m * product.count;
    }
    return sum / 2;  // gate and up
  };
  EXPECT_EQ(rows(), 64);
  w.padding.uneven = true;
  EXPECT_EQ(rows(), 83) << "64 + sqrt(2 ln 16 x 64 x 15/16), rounded up";
}

TEST(Certificates, CarryNoMixedStepAndNoPipeline) {
  const Graph graph = MakeModel({.layers = 2});
  Workload mixed = kDecoders, staged = kDecoders, parted = kDecoders;
  mixed.chunk = 8;
  staged.pp = 2;
  parted.sp = 2;
  for (const Workload& w : {mixed, staged, parted})
    EXPECT_EQ(Refusal(CertificateText(graph, nullptr, "v6e", w)).code, 1703);
}

}  // namespace
}  // namespace twinforge
