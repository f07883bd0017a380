// twinforge check CERT: whether a certificate's bounds follow from what it says, recomputed without cost/.
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "check/certificate_check.h"
#include "cli/certify.h"
#include "cli/new_folder.h"
#include "cli/open.h"
#include "cli/verb.h"
#include "cost/certificate_graph.h"

namespace twinforge {
namespace {

constexpr int64_t kLargestCertificate = 16 << 20;

struct CheckFlags {
  std::string certificate;
  std::string model;
  std::string twin;
  std::string chip_file;
  std::string measured;
  std::string measured_source;
  std::string out;
};

// A checkpoint, a twin or a config alone.
absl::StatusOr<OpenedModel> OpenAny(const std::string& path) {
  struct stat info = {};
  const bool config =
      absl::EndsWith(path, ".json") && stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  return OpenModelOrTwin(config ? ModelFlags{.from_config = path} : ModelFlags{.path = path});
}

absl::StatusOr<HashesAtHand> HashesOf(const CheckFlags& flags) {
  HashesAtHand hashes;
  if (!flags.model.empty()) {
    TWIN_ASSIGN_OR_RETURN(const OpenedModel model, OpenAny(flags.model));
    hashes["model"] = CertifiedHash(model.model.graph);
  }
  if (!flags.twin.empty()) {
    TWIN_ASSIGN_OR_RETURN(const OpenedModel twin, OpenAny(flags.twin));
    hashes["twin"] = CertifiedHash(twin.model.graph);
    // A twin knows the graph that it was made from.
    if (twin.source_graph && flags.model.empty()) hashes["model"] = CertifiedHash(*twin.source_graph);
  }
  if (!flags.chip_file.empty()) {
    TWIN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.chip_file));
    hashes["chip"] = Sha256Hex(text);
  }
  return hashes;
}

Outcome SayVerdict(const CertificateVerdict& verdict, const HashesAtHand& hashes) {
  Outcome outcome;
  outcome.exit = verdict.accepted() ? ExitCode::kDone : ExitCode::kFindings;
  outcome.json["accepted"] = verdict.accepted();
  outcome.json["findings"] = Json::array();
  for (const Diagnostic& d : verdict.findings) {
    outcome.json["findings"].push_back(
        {{"code", absl::StrCat("TF", d.code)}, {"place", d.place}, {"message", d.message}, {"hint", d.hint}});
  }
  outcome.json["chip"] = verdict.chip;
  outcome.json["ops"] = verdict.ops;
  outcome.json["products"] = verdict.products;
  outcome.json["rungs"] = verdict.rungs;
  outcome.json["assumed"] = verdict.assumed;
  outcome.json["compared"] = Json::array();
  for (const auto& [what, hash] : hashes) outcome.json["compared"].push_back(what);
  if (!verdict.accepted()) {
    absl::StrAppend(&outcome.human, "rejected, findings: ", verdict.findings.size(), "\n");
    for (const Diagnostic& d : verdict.findings) {
      absl::StrAppend(&outcome.human, "  TF", d.code, " ", d.place, ": ", d.message, "\n");
      if (!d.hint.empty()) absl::StrAppend(&outcome.human, "    hint: ", d.hint, "\n");
    }
    return outcome;
  }
  absl::StrAppend(&outcome.human, "accepted: ", verdict.ops, " ops on ", verdict.chip, ", ", verdict.products,
                  " kinds of products, every number recomputed\n");
  for (const std::string& rung : verdict.rungs) absl::StrAppend(&outcome.human, "  ", rung, "\n");
  for (const std::string& what : verdict.assumed) absl::StrAppend(&outcome.human, "  assumed: ", what, "\n");
  for (const auto& [what, hash] : hashes) {
    absl::StrAppend(&outcome.human, "  made from the ", what, " at hand, sha256 ", hash, "\n");
  }
  return outcome;
}

absl::StatusOr<Outcome> RunCheck(const CheckFlags& flags) {
  if (flags.measured.empty() != flags.measured_source.empty()) {
    return Error(1003, "--measured", "goes with --measured-source, which says where the number is from");
  }
  if (flags.measured.empty() && !flags.out.empty())
    return Error(1003, "--out", "is where a certificate with its --measured goes, and there is none");
  TWIN_RETURN_IF_ERROR(CheckFileIsNew(flags.out));
  TWIN_ASSIGN_OR_RETURN(std::string text, ReadTextFile(flags.certificate, kLargestCertificate));
  TWIN_ASSIGN_OR_RETURN(const HashesAtHand hashes, HashesOf(flags));
  // Before anything is added, since a new seal would hide that the old one was broken.
  TWIN_ASSIGN_OR_RETURN(CertificateVerdict verdict, CheckCertificate(text, flags.certificate, hashes));
  if (flags.measured.empty() || !verdict.accepted()) return SayVerdict(verdict, hashes);
  TWIN_ASSIGN_OR_RETURN(text,
                        WithMeasurement(text, flags.certificate, flags.measured, flags.measured_source));
  TWIN_ASSIGN_OR_RETURN(verdict, CheckCertificate(text, flags.certificate, hashes));
  Outcome outcome = SayVerdict(verdict, hashes);
  if (!verdict.accepted() || flags.out.empty()) return outcome;
  TWIN_RETURN_IF_ERROR(WriteNewFile(flags.out, text));
  outcome.done = absl::StrCat("the certificate with its measurement is written to ", flags.out);
  absl::StrAppend(&outcome.human, "  with its measurement: ", flags.out, "\n");
  return outcome;
}

}  // namespace

void AddCheck(CLI::App& app, Invocation& invocation) {
  static CheckFlags flags;
  CLI::App* verb = AddVerb(app, invocation, "check", "whether a certificate of a score is sound",
                           "  twinforge score ./model --chip v6e --certificate llama.cert\n"
                           "  twinforge check llama.cert --model ./model\n"
                           "  twinforge check llama.cert --measured 0.0129 --measured-source run-7\n");
  verb->add_option("CERT", flags.certificate, "a file that `score --certificate` wrote")->required();
  verb->add_option("--model", flags.model, "the source: a folder or a config.json; its hash is compared");
  verb->add_option("--twin", flags.twin, "the twin, likewise");
  verb->add_option("--chip-file", flags.chip_file, "the chip's file; its hash is compared");
  verb->add_option("--measured", flags.measured, "seconds of the same step as somebody measured them");
  verb->add_option("--measured-source", flags.measured_source, "where they are from");
  verb->add_option("--out", flags.out, "file to make: the certificate with its measurement");
  SetRun(verb, invocation, [] { return RunCheck(flags); });
}

}  // namespace twinforge
