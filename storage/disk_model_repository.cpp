#include "storage/disk_model_repository.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "storage/appended_file.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"
#include "storage/mapped_file.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::storage {
namespace {

namespace fs = std::filesystem;
constexpr char kObjectsFormat[] = "troupe-objects 1\n";

std::string ShardPath(const std::string& directory, const std::string& digest) {
  return absl::StrCat(directory, "/objects/", digest.substr(0, 2));
}
std::string ObjectPath(const std::string& directory, const std::string& digest) {
  return absl::StrCat(ShardPath(directory, digest), "/", digest);
}

std::string PartPath(const std::string& directory, const std::string& part) {
  return absl::StrCat(directory, "/parts/", part);
}

absl::Status Absent(const std::string& digest) {
  return absl::NotFoundError(absl::StrCat("no object ", digest, " in the model repository"));
}

absl::Status CheckFormat(const std::string& directory) {
  const std::string path = directory + "/FORMAT";
  const auto text = ReadSmallFile(path, 64);
  if (absl::IsNotFound(text.status())) {
    // Objects are verified by their names when they are read, so that nothing is lost by going on.
    if (std::error_code ignored; fs::exists(directory + "/objects", ignored))
      spdlog::warn(
          "the file {} was not there and is written anew: other files of the store may be lost too; stop the "
          "daemon and check it with 'troupe store check', or restore a backup with 'troupe store restore'",
          path);
    return ReplaceFile(path, kObjectsFormat);
  }
  if (!text.ok()) return text.status();
  if (*text == kObjectsFormat) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "model repository ", directory,
      " has another format than this build reads (troupe-objects 1): use the release that wrote ",
      "it, or choose another directory"));
}

// What a crash left half-written was never acknowledged.
absl::Status EmptyTemporaries(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator it(directory + "/tmp", error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    fs::remove(it->path(), ignored);
  }
  return error ? DiskError(error.value(), "list", directory + "/tmp") : absl::OkStatus();
}

}  // namespace

// Writes under tmp/ or parts/, hashing on the way.
class DiskModelRepository::Writer final : public ObjectWriter {
 public:
  enum class Left { kGoes, kStays };  // what was not committed
  Writer(std::shared_ptr<State> state, std::string path, transport::UniqueFd file, Left left)
      : state_(std::move(state)), path_(std::move(path)), file_(std::move(file)), left_(left) {}
  ~Writer() override {
    if (file_.valid() && left_ == Left::kGoes) ::unlink(path_.c_str());
  }

  // Hashes the bytes that are in the file already.
  absl::Status ReadBack() {
    std::vector<std::byte> chunk(MiB(1).count());
    for (;;) {
      const ssize_t got = ::read(file_.get(), chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return DiskError(errno, "read", path_);
      if (got == 0) return absl::OkStatus();
      hash_.Update(std::span(chunk).first(static_cast<std::size_t>(got)));
      size_ += Bytes(static_cast<std::uint64_t>(got));
    }
  }
  // The file, which another user may have made, is this process's own, and its bytes are hashed.
  absl::Status TakeOver() {
    if (::fchown(file_.get(), ::geteuid(), ::getegid()) != 0) return DiskError(errno, "own", path_);
    return ReadBack();
  }
  [[nodiscard]] Bytes size() const override { return size_; }

  absl::Status Append(std::span<const std::byte> bytes) override {
    if (!file_.valid()) return absl::FailedPreconditionError("this object was committed before");
    TROUPE_RETURN_IF_ERROR(WriteAll(file_, bytes, path_));
    hash_.Update(bytes);
    size_ += Bytes(bytes.size());
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const AppendedBytes>> Appended() override {
    if (!file_.valid()) return absl::FailedPreconditionError("this object was committed before");
    transport::UniqueFd again(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
    if (!again.valid()) return DiskError(errno, "open", path_);
    return std::make_shared<const AppendedFile>(std::move(again), path_);
  }

  absl::StatusOr<std::string> Commit(const std::string& expected) override {
    if (!file_.valid()) return absl::FailedPreconditionError("this object was committed before");
    const transport::UniqueFd file = std::move(file_);
    absl::StatusOr<std::string> digest = Publish(file, expected);
    ::unlink(path_.c_str());  // gone already, when it was renamed
    return digest;
  }

 private:
  absl::StatusOr<std::string> Publish(const transport::UniqueFd& file, const std::string& expected) {
    const std::string digest = hash_.Finish();
    if (!expected.empty() && expected != digest) {
      return absl::InvalidArgumentError(absl::StrCat("the bytes have digest ", digest, ", expected ",
                                                     expected,
                                                     ": they were changed on their way; send them again"));
    }
    if (::fchmod(file.get(), 0400) != 0) return DiskError(errno, "protect", path_);
    TROUPE_RETURN_IF_ERROR(SyncFile(file, path_));
    TROUPE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentityOf(file.get(), path_));
    const std::string shard = ShardPath(state_->directory, digest);
    TROUPE_RETURN_IF_ERROR(MakeDirectories(shard));
    const std::string path = ObjectPath(state_->directory, digest);
    {
      const std::lock_guard lock(state_->mutex);  // or a Remove could take the file and leave the entry
      if (::rename(path_.c_str(), path.c_str()) != 0) return DiskError(errno, "rename to", path);
      // A copy that was not verified yet is replaced; readers of an older copy keep theirs.
      state_->objects[digest] = Object{size_, transport::SteadyNow(), true, identity, {}};
    }
    TROUPE_RETURN_IF_ERROR(SyncDirectory(shard));
    return digest;
  }

  const std::shared_ptr<State> state_;
  const std::string path_;
  transport::UniqueFd file_;  // invalid once committed
  const Left left_;
  Sha256 hash_;
  Bytes size_;
};

absl::StatusOr<std::unique_ptr<DiskModelRepository>> DiskModelRepository::At(const std::string& directory) {
  TROUPE_ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Acquire(directory));
  TROUPE_RETURN_IF_ERROR(CheckFormat(directory));
  for (const char* each : {"/objects", "/quarantine", "/parts", "/tmp"}) {
    TROUPE_RETURN_IF_ERROR(MakeDirectories(directory + each));
  }
  TROUPE_RETURN_IF_ERROR(EmptyTemporaries(directory));
  auto state = std::make_shared<State>();
  state->directory = directory;
  std::error_code error;
  fs::recursive_directory_iterator it(directory + "/objects", error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!IsSha256Hex(name) || !it->is_regular_file(ignored)) continue;
    Object& object = state->objects[name];
    object.size = Bytes(it->file_size(ignored));
    object.used = transport::SteadyNow();
  }
  if (error) return DiskError(error.value(), "list", directory + "/objects");
  return std::unique_ptr<DiskModelRepository>(new DiskModelRepository(std::move(lock), std::move(state)));
}

std::string DiskModelRepository::NewTemporary() {
  const std::lock_guard lock(state_->mutex);
  return absl::StrCat(state_->directory, "/tmp/", state_->next_temporary++);
}

absl::StatusOr<std::string> DiskModelRepository::Take(const std::string& path, const std::string& expected) {
  TROUPE_RETURN_IF_ERROR(CheckDigest(expected));
  TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd file, OpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  struct stat is {};
  if (::fstat(file.get(), &is) != 0) return DiskError(errno, "look at", path);
  if (!S_ISREG(is.st_mode)) return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not a file"));
  const std::string own = NewTemporary();
  // A file with another name could be changed by that name, so it is copied, and so is a file of another file system.
  if (is.st_nlink != 1 || ::rename(path.c_str(), own.c_str()) != 0)
    return ModelRepository::Take(path, expected);
  auto writer = std::make_unique<Writer>(state_, own, std::move(file), Writer::Left::kGoes);
  TROUPE_RETURN_IF_ERROR(writer->TakeOver());
  return writer->Commit(expected);
}

absl::Status DiskModelRepository::Lend(const std::string& digest, const std::string& path) {
  TROUPE_RETURN_IF_ERROR(Open(digest).status());  // its bytes are verified
  if (::link(ObjectPath(state_->directory, digest).c_str(), path.c_str()) == 0) return absl::OkStatus();
  return ModelRepository::Lend(digest, path);
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> DiskModelRepository::Create() {
  const std::string path = NewTemporary();
  TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd file, OpenFile(path, O_RDWR | O_CREAT | O_EXCL, 0400));
  return std::make_unique<Writer>(state_, path, std::move(file), Writer::Left::kGoes);
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> DiskModelRepository::Continue(const std::string& part) {
  TROUPE_RETURN_IF_ERROR(CheckPartName(part));
  const std::string path = PartPath(state_->directory, part);
  TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd file, OpenFile(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW));
  auto writer = std::make_unique<Writer>(state_, path, std::move(file), Writer::Left::kStays);
  TROUPE_RETURN_IF_ERROR(writer->ReadBack());
  return writer;
}

std::vector<PartInfo> DiskModelRepository::Parts() const {
  std::map<std::string, PartInfo> parts;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(state_->directory + "/parts", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!CheckPartName(name).ok() || !it->is_regular_file(ignored)) continue;
    const auto idle = now - it->last_write_time(ignored);
    parts[name] = {name, Bytes(it->file_size(ignored)),
                   std::max(Duration::zero(), std::chrono::duration_cast<Duration>(idle))};
  }
  std::vector<PartInfo> all;
  for (auto& [name, part] : parts) all.push_back(std::move(part));
  return all;
}

absl::Status DiskModelRepository::RemovePart(const std::string& part) {
  TROUPE_RETURN_IF_ERROR(CheckPartName(part));
  const std::string path = PartPath(state_->directory, part);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return DiskError(errno, "remove", path);
  return absl::OkStatus();
}

absl::StatusOr<ObjectBytes> DiskModelRepository::Open(const std::string& digest) {
  TROUPE_RETURN_IF_ERROR(CheckDigest(digest));
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->objects.find(digest);
    if (found == state_->objects.end()) return Absent(digest);
    found->second.used = transport::SteadyNow();
    if (const auto shared = found->second.mapped.lock(); shared && found->second.verified) {
      return ObjectBytes{shared, std::static_pointer_cast<const MappedFile>(shared)->bytes()};
    }
  }
  auto opened = MappedFile::Open(ObjectPath(state_->directory, digest));
  if (absl::IsNotFound(opened.status())) {  // removed meanwhile, or by a stranger
    const std::lock_guard lock(state_->mutex);
    if (::access(ObjectPath(state_->directory, digest).c_str(), F_OK) != 0) state_->objects.erase(digest);
    return Absent(digest);
  }
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<const MappedFile> mapped = *std::move(opened);
  if (!StillVerified(digest, mapped->identity())) {
    Sha256 hash;
    hash.Update(mapped->bytes());
    if (const std::string found = hash.Finish(); found != digest) return Quarantine(digest, found);
  }
  const std::lock_guard lock(state_->mutex);
  if (const auto object = state_->objects.find(digest); object != state_->objects.end()) {
    object->second.verified = true;
    object->second.identity = mapped->identity();
    object->second.mapped = mapped;
  }
  return ObjectBytes{mapped, mapped->bytes()};
}

bool DiskModelRepository::StillVerified(const std::string& digest, const FileIdentity& mapped) {
  const std::lock_guard lock(state_->mutex);
  const auto object = state_->objects.find(digest);
  if (object == state_->objects.end() || !object->second.verified) return false;
  if (object->second.identity != mapped) object->second.verified = false;
  return object->second.verified;
}

absl::Status DiskModelRepository::Quarantine(const std::string& digest, const std::string& found) {
  const std::string place = absl::StrCat(state_->directory, "/quarantine/", digest);
  {
    const std::lock_guard lock(state_->mutex);
    const auto object = state_->objects.find(digest);
    // Put again while it was being verified: the good copy stays.
    if (object == state_->objects.end() || object->second.verified) {
      return absl::UnavailableError(
          absl::StrCat("object ", digest, " was replaced while it was read: try again"));
    }
    if (::rename(ObjectPath(state_->directory, digest).c_str(), place.c_str()) != 0 && errno != ENOENT) {
      return DiskError(errno, "move to", place);
    }
    state_->objects.erase(object);
  }
  TROUPE_RETURN_IF_ERROR(SyncDirectory(ShardPath(state_->directory, digest)));
  return absl::DataLossError(absl::StrCat("object ", digest, " is damaged: its bytes have digest ", found,
                                          "; it was moved to ", place, ": publish or fetch it again"));
}

bool DiskModelRepository::Has(const std::string& digest) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->objects.find(digest);
  if (found == state_->objects.end()) return false;
  found->second.used = transport::SteadyNow();
  return true;
}

absl::Status DiskModelRepository::Remove(const std::string& digest) {
  TROUPE_RETURN_IF_ERROR(CheckDigest(digest));
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->objects.contains(digest)) return Absent(digest);
    const std::string path = ObjectPath(state_->directory, digest);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return DiskError(errno, "remove", path);
    state_->objects.erase(digest);
  }
  return SyncDirectory(ShardPath(state_->directory, digest));
}

absl::StatusOr<std::vector<ObjectInfo>> DiskModelRepository::Collect(const std::set<std::string>& kept,
                                                                     Duration unused_for) {
  const auto unused = [&, now = transport::SteadyNow()](const Object& object) {
    return now - object.used >= unused_for;
  };
  std::vector<std::string> candidates;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [digest, object] : state_->objects)
      if (!kept.contains(digest) && unused(object)) candidates.push_back(digest);
  }
  std::vector<ObjectInfo> removed;
  for (const auto& digest : candidates) {
    // One at a time: others use the repository meanwhile, and perhaps this object.
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->objects.find(digest);
    if (found == state_->objects.end() || !unused(found->second)) continue;
    const std::string path = ObjectPath(state_->directory, digest);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return DiskError(errno, "remove", path);
    removed.push_back({digest, found->second.size});
    state_->objects.erase(found);
  }
  return removed;
}

std::vector<ObjectInfo> DiskModelRepository::List() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<ObjectInfo> all;
  for (const auto& [digest, object] : state_->objects) all.push_back({digest, object.size});
  return all;
}

Bytes DiskModelRepository::UsedBytes() const {
  const std::lock_guard lock(state_->mutex);
  Bytes used;
  for (const auto& [digest, object] : state_->objects) used += object.size;
  return used;
}

}  // namespace troupe::storage
