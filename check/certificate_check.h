// The verdict on a certificate: accepted, or each line that does not follow from the others.
//
//   CheckCertificate(text, "llama.cert", {})     llama.cert:57: tile is 12, and 13 follows
//
// All arithmetic is done first and named; then the hashes of what one has at hand, last the file's own seal.
// So an accidental change is shown where it is, and a change that is arithmetically sound is found by the
// seal.
#ifndef TWINFORGE_CHECK_CERTIFICATE_CHECK_H_
#define TWINFORGE_CHECK_CERTIFICATE_CHECK_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/diagnostic.h"

namespace twinforge {

// SHA-256 of things at hand, by what a certificate calls them: "model", "twin", "chip".
using HashesAtHand = std::map<std::string, std::string>;

struct CertificateVerdict {
  // TF1811 a line does not follow; TF1812 made from another model, twin or chip file, or the seal broken;
  // TF1813 a measurement below a bound.
  std::vector<Diagnostic> findings;
  std::string chip;
  int64_t ops = 0;                   // nodes
  int64_t products = 0;              // lines
  std::vector<std::string> rungs;    // "R0 peak 0.000069928621634782608 s"
  std::vector<std::string> assumed;  // what the bounds rest on beside the shapes

  bool accepted() const { return findings.empty(); }
};

// TF1810 with line and column where the text is no certificate. `place` stands in messages.
absl::StatusOr<CertificateVerdict> CheckCertificate(absl::string_view text, absl::string_view place,
                                                    const HashesAtHand& hashes);

// The same certificate with one more line `measured`, sealed anew. A measurement never changes a bound.
// TF1814 where `seconds` is no decimal number above 0 with at most 21 decimals.
absl::StatusOr<std::string> WithMeasurement(absl::string_view text, absl::string_view place,
                                            absl::string_view seconds, absl::string_view source);

}  // namespace twinforge

#endif  // TWINFORGE_CHECK_CERTIFICATE_CHECK_H_
