#include "actors/seams/model_importer.hpp"

#include <algorithm>
#include <filesystem>
#include <future>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/canonical_files.hpp"
#include "storage/disk_status.hpp"
#include "storage/model_objects.hpp"

namespace troupe::actors {

namespace fs = std::filesystem;

namespace {

// Removed with all that is in it, whatever way the import went.
class WorkFolder {
 public:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) { fs::create_directories(path_, error_); }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] absl::Status status() const {
    return error_ ? storage::DiskError(error_.value(), "make", path_.string()) : absl::OkStatus();
  }

 private:
  fs::path path_;
  std::error_code error_;
};

// How many stages the file has at least: an import has its time limit for each.
std::int64_t StagesAtLeast(const ModelFile& file, Bytes size) {
  const auto& bounds = file.stages.bounds;
  if (!bounds.any() || bounds.most == Bytes() || size <= bounds.above) return 1;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(size.count() / bounds.most.count()), 1,
                                  proto::kMostStages);
}

proto::FunctionRecord RecordOf(const std::string& onnx_digest, const gpu::ImportReport& report) {
  proto::FunctionRecord record;
  record.set_onnx_digest(onnx_digest);
  record.mutable_likely_sizes()->Assign(report.likely_sizes.begin(), report.likely_sizes.end());
  record.mutable_likely_rows()->Assign(report.likely_rows.begin(), report.likely_rows.end());
  if (report.stages > 1) {
    record.mutable_stage()->set_number(report.stage);
    record.mutable_stage()->set_count(report.stages);
    record.mutable_stage()->mutable_model_outputs()->Assign(report.model_outputs.begin(),
                                                            report.model_outputs.end());
  }
  for (const auto& spec : report.inputs) *record.add_inputs() = spec;
  for (const auto& spec : report.outputs) *record.add_outputs() = spec;
  return record;
}

}  // namespace

ModelImporter::ModelImporter(Options options, storage::ModelRepository& objects)
    : options_(std::move(options)), objects_(objects) {
  std::error_code ignored;
  fs::remove_all(options_.work_directory, ignored);
}

// Many functions of one file cost one import.
absl::StatusOr<proto::FunctionRecord> ModelImporter::Import(const ModelFile& file,
                                                            const gpu::OnImportProgress& on_progress) {
  if (auto before = Before(file)) return *std::move(before);
  TROUPE_ASSIGN_OR_RETURN(const auto stages, ImportAnew(file, on_progress));
  Remember(file, stages);
  const auto number = file.stages.number;
  if (number >= 1 && number <= stages.size()) return stages[number - 1];
  return absl::InvalidArgumentError(
      absl::StrCat("the model has no stage ", number, "; it has ", stages.size()));
}

void ModelImporter::Remember(const ModelFile& file, const std::vector<proto::FunctionRecord>& stages) {
  const std::lock_guard lock(mutex_);
  ModelFile stage = file;
  for (stage.stages.number = 1; stage.stages.number <= stages.size(); ++stage.stages.number) {
    if (imported_.size() >= options_.remembered)
      imported_.erase(imported_.begin());  // any: it costs an import
    imported_.insert_or_assign(stage, stages[stage.stages.number - 1]);
  }
}

std::optional<proto::FunctionRecord> ModelImporter::Before(const ModelFile& file) const {
  std::optional<proto::FunctionRecord> record;
  {
    const std::lock_guard lock(mutex_);
    record = Remembered(file);
  }
  if (!record) return record;
  bool there = objects_.Has(file.onnx_digest) && objects_.Has(record->model_digest()) &&
               objects_.Has(record->weights_digest());
  for (const auto& packed : record->packed())
    there = there && objects_.Has(packed.model_digest()) && objects_.Has(packed.weights_digest());
  return there ? record : std::nullopt;
}

// A model that was not divided is not divided either where it could be larger.
std::optional<proto::FunctionRecord> ModelImporter::Remembered(const ModelFile& file) const {
  const auto exact = imported_.find(file);
  if (exact != imported_.end()) return exact->second;
  const auto& above = file.stages.bounds.above;
  if (file.stages.number != 1) return std::nullopt;
  for (auto it = imported_.lower_bound({file.onnx_digest, file.precision, {}}); it != imported_.end(); ++it) {
    const auto& [other, record] = *it;
    if (other.onnx_digest != file.onnx_digest || other.precision != file.precision) break;
    if (record.stage().count() > 0) continue;
    if (above == Bytes() || Bytes(record.weights_bytes()) <= above) return record;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<proto::FunctionRecord>> ModelImporter::ImportAnew(
    const ModelFile& file, const gpu::OnImportProgress& on_progress) {
  const WorkFolder folder(fs::path(options_.work_directory) / absl::StrCat("import-", next_folder_++));
  TROUPE_RETURN_IF_ERROR(folder.status());
  // The import process reads the ONNX file in a folder that is otherwise empty, so that it finds no external data file that
  // an uploaded model names.
  const auto onnx = folder.path() / "model.onnx";
  const auto output = folder.path() / "out";
  TROUPE_RETURN_IF_ERROR(objects_.Lend(file.onnx_digest, onnx.string()));
  std::error_code error;
  fs::create_directory(output, error);
  gpu::ImportLimits limits = options_.limits;
  limits.precision = file.precision;
  limits.stages = file.stages.bounds;
  limits.time *= StagesAtLeast(file, Bytes(fs::file_size(onnx, error)));
  const auto imported = gpu::RunImport(options_.program, onnx, output, limits, on_progress);
  // A file beyond the limits stays so: to try again later, as this code would tell clients, is of no use.
  if (absl::IsResourceExhausted(imported.status()) && !IsDiskFull(imported.status()))
    return absl::FailedPreconditionError(imported.status().message());
  TROUPE_RETURN_IF_ERROR(imported.status());
  std::vector<proto::FunctionRecord> stages;
  for (const auto& report : *imported) {
    auto& record = stages.emplace_back(RecordOf(file.onnx_digest, report));
    const auto models = limits.stages.any() ? output / gpu::StageFolder(report.stage) : output;
    TROUPE_RETURN_IF_ERROR(StoreModels(models, report, record));
  }
  return stages;
}

// Each is read whole and made durable, so the packed model does not wait for the canonical one.
absl::Status ModelImporter::StoreModels(const fs::path& output, const gpu::ImportReport& report,
                                        proto::FunctionRecord& record) {
  const bool has_packed = !report.packed_digest.empty();
  std::future<absl::StatusOr<proto::PackedModel>> packing;
  if (has_packed)
    packing = std::async([&] { return StoreFolder(output / gpu::kPackedFolder, report.packed_digest); });
  const auto canonical = StoreFolder(output, report.digest);
  if (has_packed) {
    TROUPE_ASSIGN_OR_RETURN(*record.add_packed(), packing.get());
  }
  TROUPE_RETURN_IF_ERROR(canonical.status());
  record.set_model_digest(canonical->model_digest());
  record.set_weights_digest(canonical->weights_digest());
  record.set_model_bytes(canonical->model_bytes());
  record.set_weights_bytes(canonical->weights_bytes());
  return absl::OkStatus();
}

absl::StatusOr<proto::PackedModel> ModelImporter::StoreFolder(const fs::path& folder,
                                                              const std::string& digest) {
  // What the import process wrote is checked as hostile bytes are. The process has ended, and its jail lets it begin no
  // other, so that nothing writes these files any more: the weights become an object where they lie.
  TROUPE_ASSIGN_OR_RETURN(const auto model,
                          gpu::ReadCanonical(folder, digest, gpu::WeightsDigest::kLeftToCaller));
  proto::PackedModel stored;
  const auto kept = storage::PutModel(objects_, model.model, folder / gpu::kWeightsFile);
  if (absl::IsInvalidArgument(kept.status()))
    return absl::DataLossError(
        absl::StrCat("the weights that the import wrote are not what its model describes; import it again: ",
                     kept.status().message()));
  TROUPE_ASSIGN_OR_RETURN(*stored.mutable_model_digest(), kept);
  stored.set_target(model.model.packed_for());
  stored.set_weights_digest(model.model.weights_digest());
  stored.set_model_bytes(model.model.ByteSizeLong());
  stored.set_weights_bytes(model.weights.size());
  return stored;
}

}  // namespace troupe::actors
