#include "cost/network.h"

#include <numeric>

#include "base/diagnostic.h"
#include "cost/chip_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Collective::Kind;

const Chip& Shipped(absl::string_view id) { return **FindIn(ShippedChips(), id); }

Exchange Of(const Chip& chip, Kind kind, int64_t bytes, int64_t devices) {
  const absl::StatusOr<Exchange> exchange = ExchangeOf(chip, {kind, bytes, devices});
  EXPECT_TRUE(exchange.ok()) << exchange.status();
  return exchange.value_or(Exchange());
}

Diagnostic Refusal(const Chip& chip, int64_t devices) {
  const absl::Status status = ExchangeOf(chip, {Kind::kAllReduce, 1, devices}).status();
  EXPECT_TRUE(DiagnosticOf(status).has_value()) << status;
  return DiagnosticOf(status).value_or(Diagnostic());
}

Chip Torus(int64_t axes, double link, double wrap, double pod) {
  Chip chip;
  chip.set_id("torus");
  chip.set_fabric(Chip::TORUS);
  chip.set_torus_axes(axes);
  chip.mutable_link_bandwidth_one_way()->set_value(link);
  chip.mutable_link_bandwidth_one_way()->set_unit("GB/s");
  chip.mutable_wrap_multiple()->set_value(wrap);
  chip.mutable_pod_chips()->set_value(pod);
  return chip;
}

Chip Switch(Chip::Fabric fabric, double both_ways, double domain) {
  Chip chip;
  chip.set_id("switch");
  chip.set_fabric(fabric);
  chip.mutable_network_bandwidth_both_ways()->set_value(both_ways);
  chip.mutable_network_bandwidth_both_ways()->set_unit("GB/s");
  chip.mutable_pod_chips()->set_value(domain);
  chip.mutable_datacentre_bandwidth_per_host()->set_value(80);
  chip.mutable_datacentre_bandwidth_per_host()->set_unit("GB/s");
  chip.mutable_chips_per_host()->set_value(8);
  return chip;
}

TEST(SliceAxes, AreNearlyEqualAndHoldAllChips) {
  EXPECT_THAT(SliceAxes(8, 2), ElementsAre(2, 4));
  EXPECT_THAT(SliceAxes(256, 2), ElementsAre(16, 16));
  EXPECT_THAT(SliceAxes(64, 3), ElementsAre(4, 4, 4));
  EXPECT_THAT(SliceAxes(7, 2), ElementsAre(1, 7));
  EXPECT_THAT(SliceAxes(6, 1), ElementsAre(6));
  for (int64_t chips = 1; chips <= 600; ++chips) {
    for (int64_t axes = 1; axes <= 3; ++axes) {
      const std::vector<int64_t> lengths = SliceAxes(chips, axes);
      ASSERT_EQ(static_cast<int64_t>(lengths.size()), axes);
      ASSERT_TRUE(std::is_sorted(lengths.begin(), lengths.end()));
      ASSERT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{1}, std::multiplies<>()), chips);
    }
  }
}

// The scaling book's worked example: bf16[2048, 8192] (34 MB) gathered over four v5e chips in a line: 3/4 of
// it through one link of 45 GB/s, 560 us. Were the axis to wrap, it would go both ways: the book's 377 us
// keep the whole of it, of which three quarters have to move.
TEST(Torus, GathersTheScalingBooksArray) {
  Chip line = Shipped("v5e");
  line.set_torus_axes(1);
  const int64_t bytes = int64_t{2} * 2048 * 8192;
  const Exchange open = Of(line, Kind::kAllGather, bytes / 4, 4);
  EXPECT_NEAR(open.seconds, 560e-6, 1e-6);
  EXPECT_EQ(open.hops, 3);
  line.mutable_wrap_multiple()->set_value(4);
  const Exchange ring = Of(line, Kind::kAllGather, bytes / 4, 4);
  EXPECT_DOUBLE_EQ(ring.seconds, open.seconds / 2);
  EXPECT_NEAR(ring.seconds, 0.75 * 373e-6, 1e-6);
  EXPECT_EQ(ring.hops, 2);
}

TEST(Torus, AddsTheBandwidthOfItsAxes) {
  const Chip chip = Torus(2, 50, 4, 64);
  const double bytes = 1e9;
  // 2 x 3 wraps nowhere: 100 GB/s; 2 x 4 wraps on its long axis: 150; 4 x 4 on both: 200.
  EXPECT_NEAR(Of(chip, Kind::kAllReduce, 1000000000, 6).seconds, 2 * bytes * 5 / 6 / 100e9, 1e-12);
  EXPECT_NEAR(Of(chip, Kind::kAllReduce, 1000000000, 8).seconds, 2 * bytes * 7 / 8 / 150e9, 1e-12);
  EXPECT_NEAR(Of(chip, Kind::kAllReduce, 1000000000, 16).seconds, 2 * bytes * 15 / 16 / 200e9, 1e-12);
  EXPECT_EQ(Of(chip, Kind::kAllReduce, 1, 6).hops, 1 + 2);
  EXPECT_EQ(Of(chip, Kind::kAllReduce, 1, 8).hops, 1 + 2);
  EXPECT_EQ(Of(chip, Kind::kAllReduce, 1, 16).hops, 2 + 2);
  // All-to-all: half of each half crosses the middle of the longest axis, L / 4 of a device's bytes per link.
  EXPECT_NEAR(Of(chip, Kind::kAllToAll, 1000000000, 16).seconds, bytes * 1 / 100e9, 1e-12);
  EXPECT_NEAR(Of(chip, Kind::kAllToAll, 1000000000, 6).seconds, bytes * 0.75 / 50e9, 1e-12);
}

TEST(Torus, BeyondItsPodPassesTheHostsNetwork) {
  Chip chip = Torus(2, 50, 4, 16);
  EXPECT_EQ(Refusal(chip, 32).code, 1706);
  EXPECT_THAT(Refusal(chip, 32).message, HasSubstr("network between hosts"));
  chip.mutable_datacentre_bandwidth_per_host()->set_value(80);
  chip.mutable_datacentre_bandwidth_per_host()->set_unit("GB/s");
  EXPECT_THAT(Refusal(chip, 32).message, HasSubstr("chips in a host"));
  chip.mutable_chips_per_host()->set_value(8);
  // Two domains of 16, each device 1/16 of the sum to the other domain, twice half of it, at 10 GB/s.
  const double within = Of(chip, Kind::kAllReduce, 1600000000, 16).seconds;
  EXPECT_NEAR(Of(chip, Kind::kAllReduce, 1600000000, 32).seconds, within + 2 * 1e8 / 2 / 10e9, 1e-12);
}

TEST(Switch, SendsAtTheRateOfItsPortWithinTheDomain) {
  const Chip chip = Switch(Chip::SWITCH, 900, 8);
  EXPECT_NEAR(Of(chip, Kind::kAllReduce, 1000000000, 8).seconds, 2 * 1e9 * 7 / 8 / 450e9, 1e-12);
  EXPECT_NEAR(Of(chip, Kind::kAllGather, 1000000000, 8).seconds, 7e9 / 450e9, 1e-12);
  EXPECT_NEAR(Of(chip, Kind::kAllToAll, 1000000000, 8).seconds, 1e9 * 7 / 8 / 450e9, 1e-12);
  EXPECT_EQ(Of(chip, Kind::kAllReduce, 1, 2).hops, 1);
}

TEST(Switch, BeyondTheDomainPassesTheHostsNetwork) {
  const Chip chip = Switch(Chip::SWITCH, 900, 8);
  const double host = 80e9 / 8;
  EXPECT_NEAR(Of(chip, Kind::kAllReduce, 1000000000, 16).seconds,
              2 * 1e9 * 7 / 8 / 450e9 + 2 * 1e9 / 8 / 2 / host, 1e-9);
  EXPECT_NEAR(Of(chip, Kind::kAllGather, 1000000000, 16).seconds, 7e9 / 450e9 + 1e9 * 8 / 8 / host, 1e-9);
  EXPECT_NEAR(Of(chip, Kind::kAllToAll, 1000000000, 16).seconds, 1e9 * 7 / 8 / 450e9 + 1e9 * 8 / 16 / host,
              1e-9);
  EXPECT_EQ(Of(chip, Kind::kAllReduce, 1, 16).hops, 2);
}

TEST(FullMesh, HasOnlyTheLinksToThoseWhoTakePart) {
  const Chip chip = Switch(Chip::FULL_MESH, 700, 8);
  EXPECT_NEAR(Of(chip, Kind::kAllReduce, 1000000000, 8).seconds, 2 * 1e9 * 7 / 8 / 350e9, 1e-12);
  EXPECT_NEAR(Of(chip, Kind::kAllReduce, 1000000000, 2).seconds, 2 * 1e9 / 2 / (350e9 / 7), 1e-12);
}

// Laws of every shipped chip whose network is known: more bytes take no less, one device exchanges nothing.
TEST(Exchanges, GrowWithTheirBytes) {
  int known = 0;
  for (const Chip& chip : ShippedChips()) {
    for (const Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kAllToAll}) {
      EXPECT_EQ(Of(chip, kind, 1 << 20, 1).seconds, 0);
      for (const int64_t devices : {2, 4, 8, 16, 64}) {
        const absl::StatusOr<Exchange> less = ExchangeOf(chip, {kind, 1 << 10, devices});
        if (!less.ok()) {
          EXPECT_EQ(DiagnosticOf(less.status()).value_or(Diagnostic()).code, 1706) << chip.id();
          continue;
        }
        ++known;
        EXPECT_GT(less->seconds, 0) << chip.id();
        EXPECT_GE(less->hops, 1) << chip.id();
        EXPECT_NEAR(Of(chip, kind, 1 << 20, devices).seconds, 1024 * less->seconds,
                    1e-9 * less->seconds * 1024);
      }
    }
  }
  EXPECT_GT(known, 150);
}

TEST(Exchanges, AreRefusedWhereANumberIsMissing) {
  Chip nothing;
  nothing.set_id("x");
  EXPECT_EQ(Refusal(nothing, 2).code, 1706);
  EXPECT_THAT(Refusal(nothing, 2).message, HasSubstr("how its chips are joined"));
  Chip torus = Torus(2, 50, 4, 64);
  torus.clear_link_bandwidth_one_way();
  EXPECT_THAT(Refusal(torus, 2).message, HasSubstr("bandwidth of a link"));
  torus = Torus(2, 50, 4, 64);
  torus.clear_pod_chips();
  EXPECT_THAT(Refusal(torus, 2).message, HasSubstr("chips in a slice"));
  torus = Torus(0, 50, 4, 64);
  EXPECT_THAT(Refusal(torus, 2).message, HasSubstr("axes"));
  Chip sw = Switch(Chip::SWITCH, 900, 8);
  sw.clear_network_bandwidth_both_ways();
  EXPECT_THAT(Refusal(sw, 2).message, HasSubstr("bandwidth to other chips"));
  sw = Switch(Chip::SWITCH, 900, 8);
  sw.clear_pod_chips();
  EXPECT_THAT(Refusal(sw, 2).message, HasSubstr("chips in a domain"));
  Chip bus;
  bus.set_id("bus");
  bus.set_fabric(Chip::HOST_BUS);
  EXPECT_THAT(Refusal(bus, 2).message, HasSubstr("bandwidth to its host"));
}

}  // namespace
}  // namespace twinforge
