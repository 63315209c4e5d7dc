// MODEL IMPORTER: makes canonical and packed models of an ONNX file, in a child process, and remembers what each
// file came to. One import makes all stages of a model that is divided.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/seams/model_repository.hpp"
#include "gpu/import/import_runner.hpp"
#include "proto/function.pb.h"
#include "storage/model_repository.hpp"

namespace troupe::actors {

// Threads: any.
class ModelImporter {
 public:
  struct Options {
    std::string program;         // path of troupe-import
    std::string work_directory;  // emptied at start
    gpu::ImportLimits limits;
    std::size_t remembered;  // results
  };
  // `objects` outlives it.
  ModelImporter(Options options, storage::ModelRepository& objects);

  // Many functions of one file cost one import.
  absl::StatusOr<proto::FunctionRecord> Import(const ModelFile& file,
                                               const gpu::OnImportProgress& on_progress);
  // What the same file came to before, if its objects are still there.
  [[nodiscard]] std::optional<proto::FunctionRecord> Before(const ModelFile& file) const;

 private:
  // With the mutex held.
  [[nodiscard]] std::optional<proto::FunctionRecord> Remembered(const ModelFile& file) const;
  // All stages of the file.
  absl::StatusOr<std::vector<proto::FunctionRecord>> ImportAnew(const ModelFile& file,
                                                                const gpu::OnImportProgress& on_progress);
  void Remember(const ModelFile& file, const std::vector<proto::FunctionRecord>& stages);
  // Keeps what the import process wrote in that folder, and names it in `record`.
  absl::Status StoreModels(const std::filesystem::path& output, const gpu::ImportReport& report,
                           proto::FunctionRecord& record);
  // Keeps the model that the import process wrote there.
  absl::StatusOr<proto::PackedModel> StoreFolder(const std::filesystem::path& folder,
                                                 const std::string& digest);

  const Options options_;
  storage::ModelRepository& objects_;
  mutable std::mutex mutex_;
  std::map<ModelFile, proto::FunctionRecord> imported_;  // guarded by mutex_
  std::atomic<std::uint64_t> next_folder_{1};
};

}  // namespace troupe::actors
