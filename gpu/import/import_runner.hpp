// IMPORT RUNNER: the daemon's side of an import: starts troupe-import as a child and turns whatever happens
// to it into a status. Whatever the file does, it does to the child. Blocking: call it on a thread that may
// wait. Threads: any number at once, each with its own output folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/import/import_report.hpp"
#include "proto/stage_wish.hpp"

namespace troupe::gpu {

struct ImportLimits {
  Bytes memory = GiB(4);
  Duration time = std::chrono::seconds(
      60);  // of the processor; the wall clock gets twice that before the child is killed
  std::uint64_t nodes = 100'000;
  bool pack = false;                                   // also write a packed model
  proto::Precision precision = proto::PRECISION_FP32;  // of the model (Model.precision)
  proto::StageBounds stages;                           // of a model that may be divided
  ImportSandbox sandbox = ImportSandbox::kRequired;
};

// Hears how far it is, on the calling thread; what the child says is checked for its form only.
using OnImportProgress = std::function<void(const ImportProgress&)>;

// `output` is an existing, empty folder; on success it holds the canonical files, those of each stage in a folder of its own
// (StageFolder) when the model may be divided; otherwise partial files. The caller removes it. Answers a report for each stage, one
// when the model is not divided. InvalidArgument: bad model; Unimplemented: unsupported; ResourceExhausted: over
// a limit; FailedPrecondition: no jail on this machine; Internal: the importer crashed or could not be
// started; a full disk is marked (IsDiskFull). Messages are one line, for the user who deployed the model.
[[nodiscard]] absl::StatusOr<std::vector<ImportReport>> RunImport(
    const std::filesystem::path& program, const std::filesystem::path& onnx,
    const std::filesystem::path& output, const ImportLimits& limits,
    const OnImportProgress& on_progress = nullptr);

// Has the importer enter its jail and do nothing else. "": all of it is there. Otherwise what the kernel
// lacks: FailedPrecondition when imports are refused for it, else a remark. Unavailable when the importer
// cannot be asked.
[[nodiscard]] absl::StatusOr<std::string> ProbeJail(const std::filesystem::path& program);

// What the importer packs for on this machine (Model.packed_for). Unavailable when it cannot be asked.
[[nodiscard]] absl::StatusOr<std::string> AskPackTarget(const std::filesystem::path& program);

}  // namespace troupe::gpu
