#include "storage/fake_model_repository.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "storage/disk_status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::storage {

namespace {

class SharedBytes final : public AppendedBytes {
 public:
  explicit SharedBytes(const std::vector<std::byte>& bytes) { Append(bytes); }
  void Append(std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  [[nodiscard]] absl::StatusOr<std::string> Read(Bytes offset, Bytes length) const override {
    const std::lock_guard lock(mutex_);
    if (offset + length > Bytes(bytes_.size())) return absl::OutOfRangeError("fewer bytes were written");
    return bytes_.substr(offset.count(), length.count());
  }

 private:
  mutable std::mutex mutex_;
  std::string bytes_;  // guarded by mutex_
};

}  // namespace

class FakeModelRepository::Writer final : public ObjectWriter {
 public:
  // `part`: empty, or what is continued.
  Writer(FakeModelRepository& repository, std::string part, std::vector<std::byte> bytes)
      : repository_(repository), part_(std::move(part)), bytes_(std::move(bytes)) {}
  ~Writer() override {
    if (part_.empty() || committed_) GiveBack();
  }
  [[nodiscard]] Bytes size() const override { return Bytes(bytes_.size()); }

  absl::Status Append(std::span<const std::byte> bytes) override {
    if (committed_) return absl::FailedPreconditionError("this object was committed before");
    const std::lock_guard lock(repository_.mutex_);
    if (repository_.used_ + Bytes(bytes.size()) > repository_.capacity_)
      return DiskFullError("memory", "write to");
    repository_.used_ += Bytes(bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    if (!part_.empty()) repository_.parts_[part_] = {bytes_, transport::SteadyNow()};
    if (appended_ != nullptr) appended_->Append(bytes);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const AppendedBytes>> Appended() override {
    if (committed_) return absl::FailedPreconditionError("this object was committed before");
    if (appended_ == nullptr) appended_ = std::make_shared<SharedBytes>(bytes_);
    return appended_;
  }

  absl::StatusOr<std::string> Commit(const std::string& expected) override {
    if (committed_) return absl::FailedPreconditionError("this object was committed before");
    committed_ = true;
    if (!part_.empty()) {
      const std::lock_guard lock(repository_.mutex_);
      repository_.parts_.erase(part_);
    }
    Sha256 hash;
    hash.Update(std::span<const std::byte>(bytes_));
    const std::string digest = hash.Finish();
    if (!expected.empty() && expected != digest) {
      return absl::InvalidArgumentError(absl::StrCat("the bytes have digest ", digest, ", expected ",
                                                     expected,
                                                     ": they were changed on their way; send them again"));
    }
    const std::lock_guard lock(repository_.mutex_);
    Object& object = repository_.objects_[digest];
    if (object.bytes) repository_.used_ -= Bytes(object.bytes->size());
    object = {std::make_shared<const std::vector<std::byte>>(std::move(bytes_)), false,
              transport::SteadyNow()};
    bytes_.clear();  // kept now: nothing to give back
    return digest;
  }

 private:
  void GiveBack() {
    const std::lock_guard lock(repository_.mutex_);
    repository_.used_ -= Bytes(bytes_.size());
  }

  FakeModelRepository& repository_;
  const std::string part_;
  std::vector<std::byte> bytes_;
  std::shared_ptr<SharedBytes> appended_;  // null: it was not asked for
  bool committed_ = false;
};

absl::StatusOr<std::unique_ptr<ObjectWriter>> FakeModelRepository::Create() {
  return std::make_unique<Writer>(*this, "", std::vector<std::byte>());
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> FakeModelRepository::Continue(const std::string& part) {
  TROUPE_RETURN_IF_ERROR(CheckPartName(part));
  const std::lock_guard lock(mutex_);
  const auto begun = parts_.try_emplace(part, Part{{}, transport::SteadyNow()}).first;
  return std::make_unique<Writer>(*this, part, begun->second.bytes);
}

std::vector<PartInfo> FakeModelRepository::Parts() const {
  const std::lock_guard lock(mutex_);
  std::vector<PartInfo> all;
  for (const auto& [name, part] : parts_)
    all.push_back({name, Bytes(part.bytes.size()), transport::SteadyNow() - part.used});
  return all;
}

absl::Status FakeModelRepository::RemovePart(const std::string& part) {
  TROUPE_RETURN_IF_ERROR(CheckPartName(part));
  const std::lock_guard lock(mutex_);
  if (const auto found = parts_.find(part); found != parts_.end()) {
    used_ -= Bytes(found->second.bytes.size());
    parts_.erase(found);
  }
  return absl::OkStatus();
}

absl::StatusOr<ObjectBytes> FakeModelRepository::Open(const std::string& digest) {
  TROUPE_RETURN_IF_ERROR(CheckDigest(digest));
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(digest);
  if (found == objects_.end()) {
    return absl::NotFoundError(absl::StrCat("no object ", digest, " in the model repository"));
  }
  found->second.used = transport::SteadyNow();
  const Object object = found->second;
  if (object.damaged) {
    used_ -= Bytes(object.bytes->size());
    objects_.erase(found);
    return absl::DataLossError(absl::StrCat("object ", digest, " is damaged: publish or fetch it again"));
  }
  return ObjectBytes{object.bytes, std::span(*object.bytes)};
}

bool FakeModelRepository::Has(const std::string& digest) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(digest);
  if (found == objects_.end()) return false;
  found->second.used = transport::SteadyNow();
  return true;
}

absl::StatusOr<std::vector<ObjectInfo>> FakeModelRepository::Collect(const std::set<std::string>& kept,
                                                                     Duration unused_for) {
  const std::lock_guard lock(mutex_);
  const Time now = transport::SteadyNow();
  std::vector<ObjectInfo> removed;
  for (auto it = objects_.begin(); it != objects_.end();) {
    const Bytes size(it->second.bytes->size());
    if (kept.contains(it->first) || now - it->second.used < unused_for) {
      ++it;
      continue;
    }
    removed.push_back({it->first, size});
    used_ -= size;
    it = objects_.erase(it);
  }
  return removed;
}

absl::Status FakeModelRepository::Remove(const std::string& digest) {
  TROUPE_RETURN_IF_ERROR(CheckDigest(digest));
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(digest);
  if (found == objects_.end()) {
    return absl::NotFoundError(absl::StrCat("no object ", digest, " in the model repository"));
  }
  used_ -= Bytes(found->second.bytes->size());
  objects_.erase(found);
  return absl::OkStatus();
}

std::vector<ObjectInfo> FakeModelRepository::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<ObjectInfo> all;
  for (const auto& [digest, object] : objects_) all.push_back({digest, Bytes(object.bytes->size())});
  return all;
}

Bytes FakeModelRepository::UsedBytes() const {
  const std::lock_guard lock(mutex_);
  Bytes used;
  for (const auto& [digest, object] : objects_) used += Bytes(object.bytes->size());
  return used;
}

void FakeModelRepository::SetCapacity(Bytes capacity) {
  const std::lock_guard lock(mutex_);
  capacity_ = capacity;
}

void FakeModelRepository::Damage(const std::string& digest) {
  const std::lock_guard lock(mutex_);
  if (const auto found = objects_.find(digest); found != objects_.end()) found->second.damaged = true;
}

}  // namespace troupe::storage
