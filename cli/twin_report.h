// What plan and forge say of a twin: steps, sites, refusals, bytes.
#ifndef TWINFORGE_CLI_TWIN_REPORT_H_
#define TWINFORGE_CLI_TWIN_REPORT_H_

#include <string>

#include "cli/verb.h"
#include "exporters/exporter.h"
#include "recipes/run.h"

namespace twinforge {

// --opset and --dtype, of --to onnx.
struct OnnxFlags {
  int opset = 0;
  std::string dtype;
};
void AddOpsetFlag(CLI::App* verb, int& opset);
void AddOnnxFlags(CLI::App* verb, OnnxFlags& flags);

// --to, --memory, --threads, --shard-size.
struct WriteFlags {
  std::string to = "auto";
  std::string memory = "2GiB";
  std::string shard_size = "5GiB";
  int threads = 2;
  bool no_reference = false;
  OnnxFlags onnx;
};
void AddWriteFlags(CLI::App* verb, WriteFlags& flags);
// Only --memory and --threads.
void AddWorkFlags(CLI::App* verb, WriteFlags& flags);
absl::StatusOr<ExportOptions> OptionsOf(const WriteFlags& flags);

// The plan in the format asked for; "auto" is the source's own format where the twin can be said
// in it, else the twin's, with the reason in `note`.
struct PlannedExport {
  ExportOptions options;
  ExportPlan plan;
  std::string note;
};
absl::StatusOr<PlannedExport> PlanWrite(const Model& model, const WriteFlags& flags);

// Applies the recipe and plans the writing. For --to hf a step that the published config can't say is refused
// at its places; for --to auto the native layout is taken where the published one can't hold what the steps
// store. What it makes is never freed: the process ends with the verb, and freeing the programs of 100,000
// tensors one by one would cost it a fifth of its time.
struct Prepared {
  Twin twin;
  PlannedExport planned;
};
absl::StatusOr<Prepared*> Prepare(const RecipeFlags& recipe, const WriteFlags& write, Model model);

// "BOUNDED, each rounded weight within 2^-8 of its magnitude"
std::string FidelityText(absl::string_view fidelity, absl::string_view bound);
std::string HumanReport(const Twin& twin);
// sites, refused, steps, fidelity.
Json ReportJson(const Twin& twin);
// bytes_out, peak_bytes, format, files.
void AddPlanJson(const PlannedExport& planned, Json& json);
std::string HumanPlan(const PlannedExport& planned);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_TWIN_REPORT_H_
