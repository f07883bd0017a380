// A finished twin becomes files; nothing is decided here.
//
//   out/                            --to hf                    --to twin
//     config.json                   source's keys, from graph  the same
//     model*.safetensors + index    source's names and layout  roles as names, oriented by Storage
//     generation_config.json        with suppress_tokens where the vocabulary is padded, else copied
//     twin.manifest.textproto       recipe, fidelity, hashes, ledger, programs, graph
//     README.md                     model card; tokenizer files and licence are copied
//     README.source.md              the source's README.md
//     reference/model.py            code that reads these files and computes what they say
//
// --to onnx writes model.onnx, and the tensors of --to twin in model.onnx.data, each at a multiple of 4,096.
//
// Output is streamed: the writer plans every byte offset from headers alone, reads boxes of whole rows that
// fit the memory budget, and publishes the folder by one rename. Bytes do not depend on threads, budget or
// interruption.
#ifndef TWINFORGE_EXPORTERS_EXPORTER_H_
#define TWINFORGE_EXPORTERS_EXPORTER_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "exporters/file_system.h"
#include "ir/model.h"
#include "weights/invert.h"

namespace twinforge {

enum class Target { kHf, kTwin, kOnnx };
absl::string_view TargetName(Target target);  // "hf", "twin", "onnx"
std::optional<Target> TargetFromName(absl::string_view name);

// A file of the twin, complete in the plan: header written, data offsets known.
struct OutputTensor {
  std::string name;
  WeightPtr program;
  std::vector<std::string> roles;
  int64_t offset = 0;  // of its first byte in the file's data section
  int64_t bytes = 0;   // as stored (packed)
};
struct OutputFile {
  std::string name;                   // "model-00001-of-00003.safetensors"
  std::string header;                 // 8 length bytes + JSON, as written; none where another file says it
  std::vector<OutputTensor> tensors;  // ascending by offset
  int64_t bytes = 0;                  // header, data and the zeros between tensors
};
struct SmallFile {
  std::string name;
  std::string content;
};

// A file copied as it is.
struct Companion {
  std::string from;  // below the root that is read
  std::string name;  // below the folder that is written
};

// Everything that a forge will write, known before a tensor byte is read.
struct ExportPlan {
  Target target = Target::kHf;
  std::vector<OutputFile> files;
  std::vector<SmallFile> small_files;  // config.json, index, generation_config.json, reference/
  std::vector<Companion> companions;
  std::vector<LedgerRow> ledger;
  std::string layout;       // kHf: the name of the layout that says it
  int opset = 0;            // kOnnx: the operator set
  std::string computed_in;  // kOnnx: the type of its values, "f32"
  int64_t bytes_out = 0;    // data of all tensors
  int64_t peak_bytes = 0;   // predicted peak memory of the whole process at this budget
  int workers = 1;          // threads that the budget has room for
  int64_t share = 0;        // memory of one of them
  std::vector<std::string>
      warnings;        // "lm_head is transposed in column panels: 3.9 GiB do not fit the budget"
  std::string digest;  // sha256 over what will be written: a resumed run must match it
};

// Where tests reach in; production leaves it out.
struct ExportSeams {
  FileSystem* files = nullptr;            // null: the system's
  int64_t tile_bytes = int64_t{4} << 20;  // read, written, hashed and journalled at once
  int64_t direct_bytes = 1 << 18;         // whole blocks that are worth writing past the page cache
};

struct ExportOptions {
  Target target = Target::kHf;
  int64_t memory = int64_t{2} << 30;  // --memory
  int threads = 2;                    // --threads
  int64_t shard_bytes = int64_t{5} << 30;
  bool reference = true;       // reference/ is written, where there is code for the graph
  int opset = 0;               // kOnnx: the operator set; 0: the usual one
  std::optional<DType> dtype;  // kOnnx: the type of its values; unset: as reference/onnx chooses
  ExportSeams seams;
};

// Refuses (TF1601..) what the target can't say; (TF1603) where a source element would be lost that no
// step dropped by name; (TF1604) where the budget is too small, naming the least that works. Reads nothing.
absl::StatusOr<ExportPlan> PlanExport(const Model& model, const ExportOptions& options);

// What goes into the manifest beside what the plan and the model already say.
struct Provenance {
  std::string recipe_name;
  std::string recipe_text;
  std::string fidelity;  // "REASSOCIATED"
  std::string bound;  // of BOUNDED: how far a weight may be off, as a part of its magnitude: "2^-8"; else ""
  std::string chip;   // "" where none was named
  int64_t shards = 1;
  std::string kernel;                // "" or "paged"
  std::vector<std::string> skipped;  // steps of the recipe that were switched off
  std::vector<std::string> steps;    // one line per step: "1 pad_vocab: 2 sites"
  std::string source_graph;          // ir text of the graph before the recipe, or ""
};

struct Progress {
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;
};

struct ExportResult {
  std::string folder;
  int64_t bytes_written = 0;
  int64_t bytes_reused = 0;  // found complete in a journal of an earlier, killed run
  int64_t peak_scratch_bytes = 0;
};

// Writes `plan` to `out` (must not exist): OUT.partial-<digest> with a journal, pre-allocated, fsynced,
// hashed per tensor and per file, renamed at the end. Finds and resumes its own partial folder.
// Disk full and memory: exit 5; transient I/O and a held lock: exit 6. `out` "/dev/null" discards
// every byte after reading and hashing it. REQUIRES: plan is PlanExport(model, options).
absl::StatusOr<ExportResult> Export(const Model& model, const ExportPlan& plan, const Provenance& provenance,
                                    const ExportOptions& options, const std::string& out,
                                    const std::function<void(const Progress&)>& progress);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_EXPORTER_H_
