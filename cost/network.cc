#include "cost/network.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/chip_file.h"

namespace twinforge {
namespace {

absl::StatusOr<double> Known(const Chip& chip, const Chip::Number& number, absl::string_view what) {
  const double value = InBaseUnits(number);
  if (value > 0) return value;
  return Error(1706, chip.id(), absl::StrCat("no source gives its ", what),
               "score fewer devices, or a chip whose network is published");
}

// Bytes that one device sends when `n` of them exchange with equal shares.
double Sent(const Collective& collective, double n) {
  const double bytes = static_cast<double>(collective.bytes.value());
  switch (collective.kind) {
    case Collective::Kind::kAllReduce:
      return 2 * bytes * (n - 1) / n;
    case Collective::Kind::kAllGather:
      return bytes * (n - 1);
    case Collective::Kind::kAllToAll:
      return bytes * (n - 1) / n;
    case Collective::Kind::kSend:
      return bytes;
  }
  return 0;
}

// Of those, what leaves a domain of `domain` devices, one device's share of it: reductions and gathers pass
// the hosts' network once for all devices of a domain.
double SentBeyond(const Collective& collective, double n, double domain) {
  const double bytes = static_cast<double>(collective.bytes.value());
  const double domains = std::ceil(n / domain);
  switch (collective.kind) {
    case Collective::Kind::kAllReduce:
      return 2 * bytes / domain * (domains - 1) / domains;
    case Collective::Kind::kAllGather:
      return bytes * (n - domain) / domain;
    case Collective::Kind::kAllToAll:
      return bytes * (n - domain) / n;
    case Collective::Kind::kSend:
      return bytes;
  }
  return 0;
}

absl::StatusOr<double> BeyondSeconds(const Chip& chip, const Collective& collective, double domain) {
  TWIN_ASSIGN_OR_RETURN(const double host,
                        Known(chip, chip.datacentre_bandwidth_per_host(), "network between hosts"));
  TWIN_ASSIGN_OR_RETURN(const double chips, Known(chip, chip.chips_per_host(), "number of chips in a host"));
  return SentBeyond(collective, static_cast<double>(collective.devices), domain) / (host / chips);
}

// Slices meet over the data centre's network alone: what is left after each has exchanged within.
absl::StatusOr<Exchange> OverSlices(const Chip& chip, const Collective& collective) {
  const int64_t within = collective.devices / collective.slices;
  const bool sends = collective.kind == Collective::Kind::kSend;
  Exchange exchange;
  if (within > 1 && !sends) {
    TWIN_ASSIGN_OR_RETURN(exchange, ExchangeOf(chip, {collective.kind, collective.bytes, within}));
  }
  TWIN_ASSIGN_OR_RETURN(const double beyond, BeyondSeconds(chip, collective, static_cast<double>(within)));
  exchange.seconds += beyond;
  ++exchange.hops;
  return exchange;
}

// Every device meets every other at the full rate of its own port.
absl::StatusOr<Exchange> OverSwitch(const Chip& chip, const Collective& collective) {
  TWIN_ASSIGN_OR_RETURN(const double both,
                        Known(chip, chip.network_bandwidth_both_ways(), "bandwidth to other chips"));
  TWIN_ASSIGN_OR_RETURN(const double domain, Known(chip, chip.pod_chips(), "number of chips in a domain"));
  const double n = static_cast<double>(collective.devices);
  double out = both / 2;
  // Of a full mesh only the links to the devices that take part are of use.
  if (collective.kind == Collective::Kind::kSend) {
    const double links = chip.fabric() == Chip::FULL_MESH ? domain - 1 : 1;
    return Exchange{.seconds = Sent(collective, n) / (out / links), .hops = 1};
  }
  if (chip.fabric() == Chip::FULL_MESH && n < domain) out *= (n - 1) / (domain - 1);
  Exchange exchange{.seconds = Sent(collective, std::min(n, domain)) / out, .hops = 1};
  if (n > domain) {
    TWIN_ASSIGN_OR_RETURN(const double beyond, BeyondSeconds(chip, collective, domain));
    exchange.seconds += beyond;
    exchange.hops = 2;
  }
  return exchange;
}

absl::StatusOr<Exchange> OverHostBus(const Chip& chip, const Collective& collective) {
  TWIN_ASSIGN_OR_RETURN(const double out, Known(chip, chip.host_bandwidth(), "bandwidth to its host"));
  return Exchange{.seconds = Sent(collective, static_cast<double>(collective.devices)) / out, .hops = 2};
}

absl::StatusOr<Exchange> OverTorus(const Chip& chip, const Collective& collective) {
  TWIN_ASSIGN_OR_RETURN(const double link, Known(chip, chip.link_bandwidth_one_way(), "bandwidth of a link"));
  TWIN_ASSIGN_OR_RETURN(const double pod, Known(chip, chip.pod_chips(), "number of chips in a slice"));
  if (chip.torus_axes() < 1)
    return Error(1706, chip.id(), "no source says how many axes its torus has", "score one device");
  if (collective.kind == Collective::Kind::kSend)
    return Exchange{.seconds = Sent(collective, 2) / link, .hops = 1};
  const double n = static_cast<double>(collective.devices);
  const int64_t within = std::min(collective.devices, static_cast<int64_t>(pod));
  const double multiple = InBaseUnits(chip.wrap_multiple());
  double out = 0;       // of one device, all axes
  double crossing = 0;  // seconds for all-to-all traffic to cross the middle of the worst axis, per byte sent
  Exchange exchange;
  for (const int64_t length : SliceAxes(within, chip.torus_axes())) {
    if (length == 1) continue;
    const bool wraps = multiple > 0 && std::fmod(static_cast<double>(length), multiple) == 0;
    const double axis = wraps ? 2 * link : link;
    out += axis;
    exchange.hops += wraps ? length / 2 : length - 1;
    crossing = std::max(crossing, static_cast<double>(length) / 4 / axis);
  }
  if (collective.kind == Collective::Kind::kAllToAll) {
    exchange.seconds = static_cast<double>(collective.bytes.value()) * crossing;
  } else {
    exchange.seconds = Sent(collective, static_cast<double>(within)) / out;
  }
  if (n > pod) {
    TWIN_ASSIGN_OR_RETURN(const double beyond, BeyondSeconds(chip, collective, pod));
    exchange.seconds += beyond;
  }
  return exchange;
}

}  // namespace

std::vector<int64_t> SliceAxes(int64_t chips, int64_t axes) {
  std::vector<int64_t> lengths;
  for (int64_t left = axes; left > 1; --left) {
    auto length = static_cast<int64_t>(
        std::floor(std::pow(static_cast<double>(chips), 1.0 / static_cast<double>(left)) + 1e-9));
    while (chips % length != 0) --length;
    lengths.push_back(length);
    chips /= length;
  }
  lengths.push_back(chips);
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

absl::StatusOr<Exchange> ExchangeOf(const Chip& chip, const Collective& collective) {
  if (collective.devices <= 1) return Exchange{};
  if (collective.slices > 1) return OverSlices(chip, collective);
  switch (chip.fabric()) {
    case Chip::TORUS:
      return OverTorus(chip, collective);
    case Chip::SWITCH:
    case Chip::FULL_MESH:
      return OverSwitch(chip, collective);
    case Chip::HOST_BUS:
      return OverHostBus(chip, collective);
    default:
      return Error(1706, chip.id(), "no source says how its chips are joined",
                   "score one device, or a chip whose network is published");
  }
}

}  // namespace twinforge
