// IMPORT REPORT: what troupe-import says on its standard output and how it exits; both ends of that pipe use
// this.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.hpp"
#include "base/units.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

// Where --pack writes, inside the output folder: canonical files of their own.
inline constexpr char kPackedFolder[] = "packed";
// Where each stage is written, inside the output folder, when the model may be divided.
[[nodiscard]] std::string StageFolder(std::uint32_t stage);

// The importer tries none that is larger (OpenDimensions::Trials).
inline constexpr std::uint32_t kMostLikelySize = 512;
// What a stage is given follows from such sizes, and may be larger.
inline constexpr std::uint32_t kMostLikelySizeOfStage = 1u << 30;

struct ImportReport {
  std::string digest;  // of model.pb: the model's name; empty when nothing was written
  std::string name;
  std::vector<proto::TensorSpec> inputs;
  std::vector<proto::TensorSpec> outputs;
  Bytes weights;
  std::uint64_t steps = 0;
  std::uint32_t stage = 1;                 // which of its stages this is
  std::uint32_t stages = 1;                // into which the file's model is divided
  std::vector<std::string> model_outputs;  // of the file's model, by name; empty when it is not divided
  std::string packed_digest;               // of the packed model beside it; empty without --pack
  // What it was packed for: the sizes of the inputs' open dimensions, in order, but of each input's first, which was 1; empty
  // without --pack.
  std::vector<std::uint32_t> likely_sizes;
  // For a stage: the size that each input's first dimension has when the whole model is given one row. Empty if each open one is 1.
  std::vector<std::uint32_t> likely_rows;
  // Of a file that was only judged:
  std::map<std::string, std::uint64_t> operators;  // how many steps have each
  std::vector<std::string> cuda_refused;           // what a CUDA GPU would refuse, a line for each reason
  std::string cuda_unknown;                        // why that is not known; empty when it is
};

// What an import does where the kernel lacks a part of the jail: refuse, or go on with what there is.
enum class ImportSandbox { kRequired, kBestEffort };
inline constexpr std::array<EnumName<ImportSandbox>, 2> kImportSandboxes = {
    {{"required", ImportSandbox::kRequired}, {"best-effort", ImportSandbox::kBestEffort}}};

enum class ImportExit : int {
  kOk = 0,
  kInternal = 1,     // a bug, or the machine's fault (disk full, ...)
  kUsage = 2,        // bad usage
  kBadModel = 3,     // no sound ONNX file
  kUnsupported = 4,  // sound, but uses what is not supported
  kLimits = 5,       // needs more memory, time or nodes than allowed
  kNoJail = 6,       // the kernel lacks what the jail needs
};

// The refusal of an import because of what is missing.
[[nodiscard]] std::string NoJail(const std::string& missing);
[[nodiscard]] ImportExit ExitOf(const absl::Status& status);
// InvalidArgument, Unimplemented, ResourceExhausted, FailedPrecondition or Internal, with `message`.
[[nodiscard]] absl::Status StatusOf(ImportExit exit, const std::string& message);

// How far the import is. What the importer says of it is shown to people, and nothing depends on it.
struct ImportProgress {
  enum class Stage { kChecking, kFolding, kPacking };
  Stage stage = Stage::kChecking;
  std::uint64_t steps = 0;  // of the stage, done
  std::uint64_t steps_total = 0;
};
// "checking", "folding", "packing".
[[nodiscard]] std::string StageName(ImportProgress::Stage stage);
// "progress folding 120 400": a line before the report, without the newline.
[[nodiscard]] std::string ToLine(const ImportProgress& progress);
// Nothing for any other line.
[[nodiscard]] std::optional<ImportProgress> ParseProgress(std::string_view line);

// One line of JSON, without the newline.
[[nodiscard]] std::string ToJson(const ImportReport& report);
[[nodiscard]] absl::StatusOr<ImportReport> ParseReport(const std::string& line);
// A line for each stage, in order.
[[nodiscard]] absl::StatusOr<std::vector<ImportReport>> ParseReports(const std::string& lines);

}  // namespace troupe::gpu
