// A score as a file that anybody can recompute: the bounds of rungs R0 to R3 with all that they follow from.
//
//   CertificateText(twin, &source, "v6e", {.batch = 16, .context = 2048})
//
//   twinforge certificate 1
//   ...
//   op 32 "gated_mlp" "layers.0.mlp" useful 2818572288
//     product dense m 16 k 4096 n 14336 count 1 left bf16 right bf16
//       as "bf16" useful 939524096 idle 0 dtype 0.000002046893455337690 form folds ...
//   ...
//   spared 134217728 seconds 0.000081940004884004885
//   ...
//   rung R3 memory class B seconds 0.011705022671550671516
//
// Every time is a multiple of 10^-21 s, each one rounded down from the exact quotient of integers and then
// added exactly, so that a checker without floating point finds every digit. `check/` is such a checker; the
// grammar stands in docs/certificates.md.
#ifndef TWINFORGE_COST_CERTIFICATE_H_
#define TWINFORGE_COST_CERTIFICATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/score.h"
#include "ir/graph.h"

namespace twinforge {

// One constant of an estimate, as an interval: three values from 0 to 10^15, written with 15 decimals at
// most.
struct CertificateConstant {
  std::string name;
  double low = 0;
  double mid = 0;
  double high = 0;
  std::string unit;
  std::string source;
};

// What an estimated rung adds to the one before it: its parts, in seconds from 0 to 10^12, low <= mid <=
// high, written to 10^-15 s.
struct CertificatePart {
  std::string what;  // "launches"
  double low = 0;
  double mid = 0;
  double high = 0;
};

struct CertificateEstimate {
  std::string rung;  // "R4"
  std::string name;  // "kernel": a word
  std::vector<CertificatePart> parts;
};

struct CertificateEstimates {
  std::vector<CertificateConstant> constants;
  std::vector<CertificateEstimate> rungs;  // ascending from R4 on
};

// `useful`: the source's graph; null: `graph` itself. Refuses what ScoreGraph() refuses.
absl::StatusOr<std::string> CertificateText(const Graph& graph, const Graph* useful, const std::string& chip,
                                            const Workload& workload,
                                            const CertificateEstimates& estimates = {});

}  // namespace twinforge

#endif  // TWINFORGE_COST_CERTIFICATE_H_
