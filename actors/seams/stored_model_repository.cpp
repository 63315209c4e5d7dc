#include "actors/seams/stored_model_repository.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/import/canonical_files.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"
#include "storage/model_objects.hpp"

namespace troupe::actors {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMaxPart = 8u << 20;
constexpr char kPackedFolder[] = "packed";

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

}  // namespace

StoredModelRepository::StoredModelRepository(Options options, storage::ModelRepository& objects,
                                             storage::HostSegments* host, transport::TensorChannel& channel)
    : options_(std::move(options)),
      objects_(objects),
      host_(host),
      channel_(channel),
      imports_(options_.import_queue,
               [this](const std::string& onnx_digest, const gpu::OnImportProgress& on_progress) {
                 return ImportNow(onnx_digest, on_progress);
               }),
      pool_(options_.threads) {
  std::error_code ignored;
  fs::remove_all(options_.work_directory, ignored);
}

StoredModelRepository::~StoredModelRepository() = default;

template <class T>
void StoredModelRepository::OnPool(Done<T> done, std::function<absl::StatusOr<T>()> job) {
  auto shared = std::make_shared<Done<T>>(std::move(done));
  const auto status = pool_.Post([shared, job = std::move(job)] { (*shared)(job()); });
  if (!status.ok()) (*shared)(status);
}

void StoredModelRepository::Receive(const std::string& upload, std::uint64_t offset, std::string data,
                                    bool last, const std::string& digest, Done<std::uint64_t> done) {
  OnPool<std::uint64_t>(std::move(done), [this, upload, offset, data = std::move(data), last, digest] {
    return Append(upload, offset, data, last, digest);
  });
}

absl::StatusOr<std::uint64_t> StoredModelRepository::Append(const std::string& name, std::uint64_t offset,
                                                            const std::string& data, bool last,
                                                            const std::string& digest) {
  TROUPE_ASSIGN_OR_RETURN(const auto upload, BeginPart(name, offset));
  const auto size = Write(name, *upload, data, last, digest);
  // After an error it is unknown how much of the part is in the file: the upload begins again.
  EndPart(name, upload, last || !size.ok());
  return size;
}

absl::StatusOr<std::shared_ptr<StoredModelRepository::Upload>> StoredModelRepository::BeginPart(
    const std::string& name, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  // A part at offset 0 begins a new upload, with a file of its own; a writer that is still at work on the earlier
  // upload keeps writing to the earlier file.
  if (offset == 0) uploads_[name] = std::make_shared<Upload>();
  const auto found = uploads_.find(name);
  if (found != uploads_.end() && found->second->busy) {
    return absl::AbortedError(absl::StrCat("upload '", name, "' was sent byte ", offset,
                                           " while the part before is being written: wait for the answer to",
                                           " each part, or begin again at 0"));
  }
  const auto received = found == uploads_.end() ? 0 : found->second->received;
  if (offset != received) {
    return absl::InvalidArgumentError(absl::StrCat("upload '", name, "' is at byte ", received, ", and byte ",
                                                   offset, " was sent: begin again at 0"));
  }
  auto upload = found->second;
  upload->busy = true;
  upload->used = ++upload_clock_;
  if (uploads_.size() > options_.uploads) {
    uploads_.erase(std::min_element(uploads_.begin(), uploads_.end(), [](const auto& a, const auto& b) {
      return a.second->used < b.second->used;
    }));
  }
  return upload;
}

void StoredModelRepository::EndPart(const std::string& name, const std::shared_ptr<Upload>& upload,
                                    bool over) {
  const std::lock_guard lock(mutex_);
  upload->busy = false;
  const auto found = uploads_.find(name);
  if (over && found != uploads_.end() && found->second == upload) uploads_.erase(found);
}

absl::StatusOr<std::uint64_t> StoredModelRepository::Write(const std::string& name, Upload& upload,
                                                           const std::string& data, bool last,
                                                           const std::string& digest) {
  if (upload.writer == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(upload.writer, objects_.Create());
  }
  TROUPE_RETURN_IF_ERROR(upload.writer->Append(std::as_bytes(std::span(data))));
  upload.received += data.size();
  if (!last) return upload.received;
  TROUPE_RETURN_IF_ERROR(storage::CheckDigest(digest));
  const auto stored = upload.writer->Commit(digest);
  // The digest has its form, so the bytes are not the ones it names.
  if (absl::IsInvalidArgument(stored.status()))
    return absl::DataLossError(absl::StrCat("upload '", name, "': ", stored.status().message()));
  TROUPE_RETURN_IF_ERROR(stored.status());
  return upload.received;
}

void StoredModelRepository::Import(const std::string& onnx_digest, const std::string& client,
                                   Done<proto::FunctionRecord> done) {
  // What it came to before is looked up on the pool: that asks the disk.
  auto shared = std::make_shared<Done<proto::FunctionRecord>>(std::move(done));
  const auto posted = pool_.Post([this, onnx_digest, client, shared] {
    if (auto before = ImportedBefore(onnx_digest)) return (*shared)(*std::move(before));
    Bytes size;
    {
      const auto file = objects_.Open(onnx_digest);
      if (!file.ok()) return (*shared)(file.status());
      size = Bytes(file->bytes.size());
    }
    imports_.Add(onnx_digest, client, size, std::move(*shared));
  });
  if (!posted.ok()) (*shared)(posted);
}

std::vector<proto::ImportStatus> StoredModelRepository::Imports(const std::string& onnx_digest) const {
  return imports_.Describe(onnx_digest);
}

// Many functions of one file cost one import.
absl::StatusOr<proto::FunctionRecord> StoredModelRepository::ImportNow(
    const std::string& onnx_digest, const gpu::OnImportProgress& on_progress) {
  if (auto before = ImportedBefore(onnx_digest)) return *std::move(before);
  auto record = ImportAnew(onnx_digest, on_progress);
  if (!record.ok()) return record;
  const std::lock_guard lock(mutex_);
  if (imported_.size() >= options_.imports) imported_.erase(imported_.begin());  // any: it costs an import
  imported_.insert_or_assign(onnx_digest, *record);
  return record;
}

std::optional<proto::FunctionRecord> StoredModelRepository::ImportedBefore(
    const std::string& onnx_digest) const {
  std::optional<proto::FunctionRecord> record;
  {
    const std::lock_guard lock(mutex_);
    const auto it = imported_.find(onnx_digest);
    if (it != imported_.end()) record = it->second;
  }
  if (!record) return record;
  bool there = objects_.Has(onnx_digest) && objects_.Has(record->model_digest()) &&
               objects_.Has(record->weights_digest());
  for (const auto& packed : record->packed())
    there = there && objects_.Has(packed.model_digest()) && objects_.Has(packed.weights_digest());
  return there ? record : std::nullopt;
}

absl::StatusOr<proto::FunctionRecord> StoredModelRepository::ImportAnew(
    const std::string& onnx_digest, const gpu::OnImportProgress& on_progress) {
  TROUPE_ASSIGN_OR_RETURN(const auto file, objects_.Open(onnx_digest));
  const WorkFolder folder(fs::path(options_.work_directory) / absl::StrCat("import-", next_folder_++));
  TROUPE_RETURN_IF_ERROR(folder.status());
  // The child gets a file of its own in an empty folder: external data that an uploaded model names is not
  // there.
  const auto onnx = folder.path() / "model.onnx";
  const auto output = folder.path() / "out";
  {
    TROUPE_ASSIGN_OR_RETURN(const auto copy, storage::OpenFile(onnx.string(), O_CREAT | O_EXCL | O_WRONLY));
    TROUPE_RETURN_IF_ERROR(storage::WriteAll(copy, file.bytes, onnx.string()));
  }
  std::error_code error;
  fs::create_directory(output, error);
  const auto imported = gpu::RunImport(options_.import_program, onnx, output, options_.import, on_progress);
  // A file beyond the limits stays so: to try again later, as this code would tell clients, is of no use.
  if (absl::IsResourceExhausted(imported.status()) && !IsDiskFull(imported.status()))
    return absl::FailedPreconditionError(imported.status().message());
  TROUPE_RETURN_IF_ERROR(imported.status());
  const auto& report = *imported;
  proto::FunctionRecord record;
  record.set_onnx_digest(onnx_digest);
  for (const auto& spec : report.inputs) *record.add_inputs() = spec;
  for (const auto& spec : report.outputs) *record.add_outputs() = spec;
  Names names;
  std::uint64_t model_bytes = 0;
  std::uint64_t weights_bytes = 0;
  TROUPE_RETURN_IF_ERROR(StoreFolder(output.string(), report.digest, &names, &model_bytes, &weights_bytes));
  record.set_model_digest(names.model);
  record.set_weights_digest(names.weights);
  record.set_model_bytes(model_bytes);
  record.set_weights_bytes(weights_bytes);
  if (!report.packed_digest.empty()) {
    const auto packed = output / kPackedFolder;
    TROUPE_ASSIGN_OR_RETURN(const auto model, gpu::ReadCanonical(packed, report.packed_digest));
    TROUPE_RETURN_IF_ERROR(
        StoreFolder(packed.string(), report.packed_digest, &names, &model_bytes, &weights_bytes));
    auto& entry = *record.add_packed();
    entry.set_target(model.model.packed_for());
    entry.set_model_digest(names.model);
    entry.set_weights_digest(names.weights);
    entry.set_model_bytes(model_bytes);
    entry.set_weights_bytes(weights_bytes);
  }
  return record;
}

absl::Status StoredModelRepository::StoreFolder(const std::string& folder, const std::string& digest,
                                                Names* names, std::uint64_t* model_bytes,
                                                std::uint64_t* weights_bytes) {
  // The child's output is checked as hostile bytes are.
  TROUPE_ASSIGN_OR_RETURN(const auto model, gpu::ReadCanonical(folder, digest));
  *model_bytes = gpu::SerializeModel(model.model).size();
  *weights_bytes = model.weights.size();
  names->weights = model.model.weights_digest();
  TROUPE_ASSIGN_OR_RETURN(names->model, storage::PutModel(objects_, model.model, model.weights));
  return absl::OkStatus();
}

void StoredModelRepository::Keep(const proto::TensorRef& ref, Done<std::string> done) {
  OnPool<std::string>(std::move(done), [this, ref]() -> absl::StatusOr<std::string> {
    TROUPE_ASSIGN_OR_RETURN(const auto data, channel_.Fetch(ref, options_.load_timeout));
    return objects_.Put(data.bytes());
  });
}

void StoredModelRepository::Collect(std::set<std::string> kept, Duration unused_for, Done<Bytes> done) {
  OnPool<Bytes>(std::move(done), [this, kept = std::move(kept), unused_for]() -> absl::StatusOr<Bytes> {
    TROUPE_ASSIGN_OR_RETURN(const auto removed, objects_.Collect(kept, unused_for));
    Bytes sum;
    for (const auto& object : removed) sum += object.size;
    return sum;
  });
}

void StoredModelRepository::Read(const proto::FetchObject& part, Done<proto::FetchReply> done) {
  OnPool<proto::FetchReply>(std::move(done), [this, part] { return ReadNow(part); });
}

absl::StatusOr<proto::FetchReply> StoredModelRepository::ReadNow(const proto::FetchObject& part) {
  TROUPE_ASSIGN_OR_RETURN(const auto object, objects_.Open(part.digest()));
  if (part.offset() > object.bytes.size()) {
    return absl::OutOfRangeError(absl::StrCat("object ", part.digest(), " has ", object.bytes.size(),
                                              " bytes; byte ", part.offset(), " was asked for"));
  }
  const auto length = std::min({part.length(), kMaxPart, object.bytes.size() - part.offset()});
  proto::FetchReply reply;
  reply.set_total(object.bytes.size());
  TROUPE_ASSIGN_OR_RETURN(*reply.mutable_data(),
                          channel_.Put(object.bytes.subspan(part.offset(), length), part.digest()));
  if (reply.data().has_arena()) {
    const std::lock_guard lock(mutex_);
    reply.set_release(next_release_++);
    unreleased_[reply.release()] = reply.data();
  }
  return reply;
}

void StoredModelRepository::Release(std::uint64_t release) {
  proto::TensorRef ref;
  {
    const std::lock_guard lock(mutex_);
    auto node = unreleased_.extract(release);
    if (node.empty()) return;
    ref = std::move(node.mapped());
  }
  // It was put by this channel and is released once: the only error would be a bug here.
  static_cast<void>(channel_.Release(ref));
}

void StoredModelRepository::Load(const proto::TensorRef& ref, Done<std::string> done) {
  OnPool<std::string>(std::move(done), [this, ref]() -> absl::StatusOr<std::string> {
    TROUPE_ASSIGN_OR_RETURN(const auto data, channel_.Fetch(ref, options_.load_timeout));
    return std::string(reinterpret_cast<const char*>(data.bytes().data()), data.bytes().size());
  });
}

StoredModelRepository::Names StoredModelRepository::NamesOf(const proto::FunctionRecord& function) const {
  for (const auto& packed : function.packed())
    if (!options_.pack_target.empty() && packed.target() == options_.pack_target)
      return {packed.model_digest(), packed.weights_digest()};
  return {function.model_digest(), function.weights_digest()};
}

std::vector<std::string> StoredModelRepository::ObjectsOf(const proto::FunctionRecord& function) const {
  const auto names = NamesOf(function);
  return {names.weights, names.model};
}

void StoredModelRepository::Adopt(const proto::FunctionRecord& function, const std::string& key,
                                  Done<proto::HostCopy> done) {
  OnPool<proto::HostCopy>(std::move(done), [this, function, key] { return AdoptNow(function, key); });
}

absl::StatusOr<proto::HostCopy> StoredModelRepository::AdoptNow(const proto::FunctionRecord& function,
                                                                const std::string& key) {
  if (host_ == nullptr) return absl::FailedPreconditionError("this process has no host region");
  const auto names = NamesOf(function);
  TROUPE_ASSIGN_OR_RETURN(const auto model, storage::OpenModel(objects_, names.model));
  GiveBackNow();  // what has left makes the room for what comes
  storage::HostRepository::Reservation room;
  {
    const std::lock_guard lock(host_mutex_);
    TROUPE_ASSIGN_OR_RETURN(room, host_->Reserve(key, names.model, Bytes(model.serialized.bytes.size()),
                                                 Bytes(model.weights.bytes.size())));
  }
  // The copy is long and touches bytes that no reader sees yet: outside the lock.
  if (!room.adoption.present) {
    std::memcpy(room.model.data(), model.serialized.bytes.data(), model.serialized.bytes.size());
    if (!model.weights.bytes.empty())
      std::memcpy(room.weights.data(), model.weights.bytes.data(), model.weights.bytes.size());
  }
  const std::lock_guard lock(host_mutex_);
  auto& models = *host_->Find(key);
  if (!room.adoption.present) models.Publish(names.model);
  // Adopted models stay until they are disowned: the cache decides what leaves, not the region.
  const bool held = !host_names_.emplace(std::pair(function.model_digest(), key), names.model).second;
  if (!held) return models.Pin(names.model);
  const auto copy = models.Find(names.model);
  TROUPE_CHECK(copy.has_value(), "a pinned model left the host region");
  return *copy;
}

void StoredModelRepository::Disown(const std::string& model_digest, const std::string& key) {
  {
    const std::lock_guard lock(host_mutex_);
    auto node = host_names_.extract({model_digest, key});
    if (node.empty() || host_ == nullptr) return;
    auto& models = *host_->Find(key);
    models.Unpin(node.mapped());
    // Gone already is as good.
    static_cast<void>(models.Discard(node.mapped()));
  }
  // Should the pool be full, the next adoption gives it back.
  static_cast<void>(pool_.Post([this] { GiveBackNow(); }));
}

void StoredModelRepository::GiveBackNow() {
  std::vector<storage::HostSegments::RegionPtr> regions;
  {
    const std::lock_guard lock(host_mutex_);
    regions = host_->Regions();
  }
  storage::HostSegments::GiveBack(regions);
  regions.clear();
  const std::lock_guard lock(host_mutex_);
  host_->DropEmpty();
}

absl::StatusOr<storage::HostSegments::RegionPtr> StoredModelRepository::RegionOf(bool without_key,
                                                                                 const std::string& key) {
  if (host_ == nullptr) return absl::FailedPreconditionError("this process has no host region");
  const std::lock_guard lock(host_mutex_);
  if (without_key) return host_->empty_region();
  return host_->RegionOf(key);
}

storage::HostRepository::Usage StoredModelRepository::host_usage() const {
  const std::lock_guard lock(host_mutex_);
  return host_ == nullptr ? storage::HostRepository::Usage() : host_->usage();
}

}  // namespace troupe::actors
