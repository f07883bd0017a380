#include "exporters/plan_parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "exporters/manifest.h"
#include "exporters/stream.h"
#include "exporters/tiles.h"

namespace twinforge {
namespace {

// Memory of the process beside its workers, measured (tests/exporters/memory_test.cc holds the prediction
// against the system's count): code and libraries; and per tensor its header entry, programs, graph and row.
constexpr int64_t kFixedBytes = int64_t{44} << 20;
constexpr int64_t kBytesPerTensor = 6 << 10;
// Below this a worker would spend its time on calls, and the list of groups would be large itself.
constexpr int64_t kLeastShare = 1 << 20;

std::string SizeText(int64_t bytes) {
  return bytes >= int64_t{1} << 30 ? absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (1 << 30))
                                   : absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

void WarnOfPanels(const ExportOptions& options, ExportPlan& plan) {
  int64_t tensors = 0;
  const OutputTensor* first = nullptr;
  int64_t panels = 0;
  for (const OutputFile& file : plan.files) {
    for (const OutputTensor& tensor : file.tensors) {
      if (tensor.bytes <= options.seams.tile_bytes) continue;
      Tiling tiling = Cut(tensor.program, plan.share, options.seams.tile_bytes);
      if (!tiling.panels || tensors++ > 0) continue;
      first = &tensor;
      panels = tiling.tiles;
    }
  }
  if (first == nullptr) return;
  plan.warnings.push_back(absl::StrCat(first->name, " is transposed in ", panels,
                                       " column panels: ", SizeText(2 * first->bytes), " do not fit ",
                                       SizeText(plan.share), " a worker",
                                       tensors > 1 ? absl::StrCat("; so are ", tensors - 1, " more") : "",
                                       "; a larger --memory or fewer --threads reads faster"));
}

// The least budget that works, with one thread, to a quarter.
int64_t LeastMebibytes(const ExportPlan& plan, const ExportOptions& options, int64_t fixed) {
  int64_t share = kLeastShare;
  for (const OutputFile& file : plan.files) {
    for (const OutputTensor& tensor : file.tensors) share = std::max(share, LeastCost(tensor.program));
  }
  while (WorkerBytes(plan.files, share, options.seams.tile_bytes, nullptr) > share) share += share / 4;
  return (fixed + share + (1 << 20) - 1) >> 20;
}

}  // namespace

int64_t FixedBytes(int64_t tensors) { return kFixedBytes + tensors * kBytesPerTensor; }

absl::Status PlanMemory(int64_t source_tensors, const ExportOptions& options, ExportPlan& plan) {
  int64_t tensors = source_tensors;
  for (const OutputFile& file : plan.files) tensors += static_cast<int64_t>(file.tensors.size());
  const int64_t fixed = FixedBytes(tensors);
  std::string hardest;
  for (int workers = std::max(1, options.threads); workers >= 1; --workers) {
    plan.workers = workers;
    plan.share = (options.memory - fixed) / workers;
    if (plan.share < kLeastShare) continue;
    int64_t worker_bytes = WorkerBytes(plan.files, plan.share, options.seams.tile_bytes, &hardest);
    if (worker_bytes > plan.share) continue;
    plan.peak_bytes = fixed + workers * worker_bytes;
    if (workers < options.threads) {
      plan.warnings.push_back(absl::StrCat(workers, " of ", options.threads, " threads work: ", hardest,
                                           " has no room for more in ", SizeText(options.memory)));
    }
    WarnOfPanels(options, plan);
    return absl::OkStatus();
  }
  return Error(
      1604, hardest, absl::StrCat("a memory budget of ", SizeText(options.memory), " is too small"),
      absl::StrCat("--memory ", LeastMebibytes(plan, options, fixed), "MiB is the least that works"));
}

std::string DigestOf(const ExportPlan& plan, const std::vector<SourceFile>& sources) {
  Sha256 sha;
  auto add = [&](absl::string_view text) {
    std::string length = absl::StrCat(text.size(), ":");
    sha.Add(length.data(), static_cast<int64_t>(length.size()));
    sha.Add(text.data(), static_cast<int64_t>(text.size()));
  };
  add(absl::StrCat("twinforge plan 1 ", TargetName(plan.target)));
  for (const SourceFile& file : sources)
    add(absl::StrCat(file.name, " ", file.bytes, " ", file.header_sha256));
  for (const OutputFile& file : plan.files) {
    add(file.name);
    add(file.header);
    for (const OutputTensor& tensor : file.tensors) add(absl::StrCat(absl::Hex(tensor.program->hash())));
  }
  for (const SmallFile& file : plan.small_files) {
    add(file.name);
    add(file.content);
  }
  for (const Companion& file : plan.companions) add(file.name);
  return sha.Finish();
}

absl::StatusOr<std::vector<TwinTensor>> TensorsOfLayout(const Layout& layout, const Graph& graph) {
  TWIN_ASSIGN_OR_RETURN(std::vector<NamedProgram> files, FilesFromGraph(layout, graph));
  std::vector<TwinTensor> tensors;
  auto file = files.begin();
  for (const LayoutTensor& entry : layout.tensors) {  // in whose order the files come
    for (int64_t i = 0; i < entry.count() && file != files.end() && file->name == entry.NameAt(i);
         ++i, ++file) {
      TwinTensor& tensor = tensors.emplace_back();
      tensor.name = std::move(file->name);
      tensor.program = std::move(file->program);
      for (const LayoutPart& part : entry.parts) tensor.roles.push_back(part.role);
    }
  }
  TWIN_CHECK(file == files.end(), "files come in the order of their layout");
  return tensors;
}

std::vector<Companion> CarriedAlong(const std::vector<std::string>& companions,
                                    std::set<std::string> written) {
  written.insert({"README.md", kManifestName});
  std::vector<Companion> carried;
  for (const std::string& name : companions) {
    std::string there = CompanionInTwin(name);
    if (written.insert(there).second) carried.push_back({name, std::move(there)});
  }
  return carried;
}

std::string IndexText(const std::vector<OutputFile>& files) {
  std::map<std::string, std::string> home;
  int64_t bytes = 0;
  for (const OutputFile& file : files) {
    for (const OutputTensor& tensor : file.tensors) {
      home[tensor.name] = file.name;
      bytes += tensor.bytes;
    }
  }
  std::string text =
      absl::StrCat("{\n  \"metadata\": {\n    \"total_size\": ", bytes, "\n  },\n  \"weight_map\": {\n");
  size_t left = home.size();
  for (const auto& [tensor, file] : home) {
    absl::StrAppend(&text, "    ", JsonValue::String(tensor).Text(0), ": ", JsonValue::String(file).Text(0),
                    --left == 0 ? "\n" : ",\n");
  }
  return text + "  }\n}\n";
}

}  // namespace twinforge
