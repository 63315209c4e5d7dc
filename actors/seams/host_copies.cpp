#include "actors/seams/host_copies.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/status.hpp"
#include "storage/model_objects.hpp"

namespace troupe::actors {

absl::StatusOr<proto::HostCopy> HostCopies::Adopt(const std::string& canonical, const std::string& adopted,
                                                  const std::string& key) {
  if (host_ == nullptr) return absl::FailedPreconditionError("this process has no host region");
  TROUPE_ASSIGN_OR_RETURN(const auto model, storage::OpenModel(objects_, adopted));
  GiveBack();  // what has left makes the room for what comes
  storage::HostRepository::Reservation room;
  {
    const std::lock_guard lock(mutex_);
    TROUPE_ASSIGN_OR_RETURN(room, host_->Reserve(key, adopted, Bytes(model.serialized.bytes.size()),
                                                 Bytes(model.weights.bytes.size())));
  }
  // The copy is long and touches bytes that no reader sees yet: outside the lock.
  if (!room.adoption.present) {
    std::memcpy(room.model.data(), model.serialized.bytes.data(), model.serialized.bytes.size());
    if (!model.weights.bytes.empty())
      std::memcpy(room.weights.data(), model.weights.bytes.data(), model.weights.bytes.size());
  }
  const std::lock_guard lock(mutex_);
  auto& models = *host_->Find(key);
  if (!room.adoption.present) models.Publish(adopted);
  // Adopted models stay until they are disowned: the cache decides what leaves, not the region.
  const bool held = !names_.emplace(std::pair(canonical, key), adopted).second;
  if (!held) return models.Pin(adopted);
  const auto copy = models.Find(adopted);
  TROUPE_CHECK(copy.has_value(), "a pinned model left the host region");
  return *copy;
}

bool HostCopies::Disown(const std::string& canonical, const std::string& key) {
  const std::lock_guard lock(mutex_);
  auto node = names_.extract({canonical, key});
  if (node.empty() || host_ == nullptr) return false;
  auto& models = *host_->Find(key);
  models.Unpin(node.mapped());
  // Gone already is as good.
  static_cast<void>(models.Discard(node.mapped()));
  return true;
}

void HostCopies::GiveBack() {
  std::vector<storage::HostSegments::RegionPtr> regions;
  {
    const std::lock_guard lock(mutex_);
    regions = host_->Regions();
  }
  storage::HostSegments::GiveBack(regions);
  regions.clear();
  const std::lock_guard lock(mutex_);
  host_->DropEmpty();
}

absl::StatusOr<storage::HostSegments::RegionPtr> HostCopies::RegionOf(bool without_key,
                                                                      const std::string& key) {
  if (host_ == nullptr) return absl::FailedPreconditionError("this process has no host region");
  const std::lock_guard lock(mutex_);
  if (without_key) return host_->empty_region();
  return host_->RegionOf(key);
}

storage::HostRepository::Usage HostCopies::usage() const {
  const std::lock_guard lock(mutex_);
  return host_ == nullptr ? storage::HostRepository::Usage() : host_->usage();
}

}  // namespace troupe::actors
