#include "gateway/shared_memory.hpp"

#include "base/check.hpp"
#include "base/status.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

constexpr std::size_t kLongestRegionName = 256;

absl::Status TooManyRegions(std::size_t most) {
  return absl::ResourceExhaustedError(
      Cat("no more shared memory regions can be registered at this gateway: of ", most,
          " in all a client has a quarter at most; unregister those that are not used"));
}

absl::Status TooManyBytes(Bytes wanted, Bytes most) {
  return absl::ResourceExhaustedError(Cat(
      "a shared memory region of ", FormatBytes(wanted), " is too much: of the ", FormatBytes(most),
      " that all regions at this gateway may have, a client has half at most; unregister those that are not "
      "used"));
}

}  // namespace

absl::Status SharedRange::Write(std::span<const std::byte> bytes) const {
  TROUPE_CHECK(bytes.size() <= size_.count(), "what is written fits the range");
  return region_->Write(offset_, bytes);
}

std::shared_ptr<const void> SharedMemory::Take(const Shared& account, const RegionOwner& owner,
                                               std::uint64_t count, std::uint64_t most,
                                               std::uint64_t most_of_owner) {
  const std::lock_guard lock(account->mutex);
  const auto found = account->used.find(owner);
  const std::uint64_t before = found == account->used.end() ? 0 : found->second;
  if (count > most - account->total || before > most_of_owner || count > most_of_owner - before)
    return nullptr;
  account->total += count;
  account->used[owner] += count;
  return std::shared_ptr<const void>(account.get(), [account, owner, count](const void*) {
    const std::lock_guard returning(account->mutex);
    account->total -= count;
    const auto at = account->used.find(owner);
    at->second -= count;
    if (at->second == 0) account->used.erase(at);
  });
}

absl::Status SharedMemory::Register(const RegionOwner& owner, const std::string& name, RegionPlace place) {
  if (name.size() > kLongestRegionName) {
    return absl::InvalidArgumentError(Cat("the name of a shared memory region has ", kLongestRegionName,
                                          " bytes at most, and this one has ", name.size()));
  }
  const Bytes size(place.byte_size);
  TROUPE_ASSIGN_OR_RETURN(auto region, SharedRegion::Open(options_.folder, std::move(place), owner.user));
  auto one = Take(regions_used_, owner, 1, options_.regions, options_.regions / 4);
  if (one == nullptr) return TooManyRegions(options_.regions);
  auto bytes = Take(bytes_used_, owner, size.count(), options_.bytes.count(), options_.bytes.count() / 2);
  if (bytes == nullptr) return TooManyBytes(size, options_.bytes);
  region->Hold(std::move(one));
  region->Hold(std::move(bytes));
  const std::lock_guard lock(mutex_);
  if (regions_.emplace(Name{owner, name}, std::move(region)).second) return absl::OkStatus();
  return absl::AlreadyExistsError(
      Cat("the shared memory region '", name, "' is registered already; unregister it first"));
}

void SharedMemory::Unregister(const RegionOwner& owner, const std::optional<std::string>& name,
                              const std::shared_ptr<const void>& ended) {
  std::vector<std::shared_ptr<SharedRegion>> gone;  // closed outside the lock
  const std::lock_guard lock(mutex_);
  for (auto at = regions_.lower_bound({owner, name.value_or("")});
       at != regions_.end() && at->first.first == owner && (!name || at->first.second == *name);) {
    at->second->Hold(ended);
    gone.push_back(std::move(at->second));
    at = regions_.erase(at);
  }
}

absl::Status SharedMemory::NotRegistered(const std::string& name) {
  return absl::NotFoundError(Cat(
      "no shared memory region '", std::string_view(name).substr(0, kLongestRegionName),
      "' is registered by this client; a region is its own for each API key and each user, at each gateway"));
}

absl::StatusOr<std::vector<SharedMemory::Status>> SharedMemory::Describe(
    const RegionOwner& owner, const std::optional<std::string>& name) const {
  std::vector<Status> all;
  const std::lock_guard lock(mutex_);
  for (auto at = regions_.lower_bound({owner, name.value_or("")});
       at != regions_.end() && at->first.first == owner && (!name || at->first.second == *name); ++at)
    all.push_back({at->first.second, at->second->place()});
  if (name && all.empty()) return NotRegistered(*name);
  return all;
}

absl::StatusOr<SharedRange> SharedMemory::Find(const RegionOwner& owner, const std::string& name,
                                               std::uint64_t offset, std::uint64_t size) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find({owner, name});
  if (found == regions_.end()) return NotRegistered(name);
  const std::uint64_t whole = found->second->place().byte_size;
  if (offset <= whole && size <= whole - offset) return SharedRange(found->second, name, offset, Bytes(size));
  return absl::OutOfRangeError(Cat(size, " bytes at offset ", offset, " leave the shared memory region '",
                                   name, "', which has ", whole, " bytes"));
}

absl::StatusOr<std::shared_ptr<const void>> SharedMemory::Charge(const RegionOwner& owner, Bytes size) {
  const std::uint64_t most = options_.inputs.count();
  auto charge = Take(inputs_used_, owner, size.count(), most, most / 3 * 2);
  if (charge != nullptr) return charge;
  return absl::ResourceExhaustedError(
      Cat("inputs in shared memory that are under way take ", FormatBytes(options_.inputs),
          " at most at this gateway, and those of one client two thirds of that; there is no room for ",
          FormatBytes(size), " now"));
}

SharedMemoryLoad SharedMemory::load() const {
  SharedMemoryLoad load;
  load.copied_in = copied_in_;
  load.copied_out = copied_out_;
  const std::lock_guard lock(mutex_);
  load.regions = regions_.size();
  for (const auto& [name, region] : regions_) load.bytes += Bytes(region->place().byte_size);
  return load;
}

}  // namespace troupe::gateway
