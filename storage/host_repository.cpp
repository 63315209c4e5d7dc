#include "storage/host_repository.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::storage {
namespace {

absl::Status NotInRegion(const std::string& digest) {
  return absl::NotFoundError(absl::StrCat("model ", digest, " is not in the host region: adopt it first"));
}

proto::HostCopy CopyAt(const std::string& digest, std::uint64_t offset, Bytes model, Bytes weights) {
  proto::HostCopy copy;
  copy.set_digest(digest);
  copy.mutable_model()->set_offset(offset);
  copy.mutable_model()->set_length(model.count());
  copy.mutable_weights()->set_offset(offset + AlignUp(model, transport::HostRegion::kAlignment).count());
  copy.mutable_weights()->set_length(weights.count());
  return copy;
}

}  // namespace

// The region's first page is its header.
HostRepository::HostRepository(std::shared_ptr<transport::HostRegion> region)
    : region_(std::move(region)), table_(transport::HostRegion::kAlignment.count(), region_->capacity()) {}

absl::StatusOr<HostRepository::Reservation> HostRepository::Reserve(const std::string& digest, Bytes model,
                                                                    Bytes weights) {
  HostRegionTable::Entry* entry = table_.Find(digest);
  if (entry == nullptr) return Place(digest, model, weights);
  if (entry->filling) {
    return absl::UnavailableError(absl::StrCat("model ", digest, " is being adopted already: try again"));
  }
  if (entry->copy.model().length() != model.count() || entry->copy.weights().length() != weights.count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", digest, " is in the host region with ", entry->copy.model().length(), " + ",
        entry->copy.weights().length(), " bytes, asked for with ", model.count(), " + ", weights.count()));
  }
  entry->doomed = false;  // wanted again before its last reader had gone
  table_.Touch(*entry);
  return Reservation{{entry->copy, {}, true}, {}, {}};
}

absl::StatusOr<HostRepository::Reservation> HostRepository::Place(const std::string& digest, Bytes model,
                                                                  Bytes weights) {
  // Each on its own first, so that the sum cannot overflow.
  const Bytes capacity = table_.capacity();
  const Bytes size = model > capacity || weights > capacity
                         ? std::max(model, weights)
                         : std::max(AlignUp(model, transport::HostRegion::kAlignment) +
                                        AlignUp(weights, transport::HostRegion::kAlignment),
                                    transport::HostRegion::kAlignment);
  TROUPE_ASSIGN_OR_RETURN(std::vector<std::string> evicted, MakeRoom(size));
  TROUPE_ASSIGN_OR_RETURN(const proto::RegionRange range, region_->Allocate(size));
  TROUPE_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, region_->Writable(range));
  const proto::HostCopy copy = CopyAt(digest, range.offset(), model, weights);
  table_.Insert(copy, range.offset(), size);
  return Reservation{
      {copy, std::move(evicted), false},
      bytes.first(model.count()),
      bytes.subspan(AlignUp(model, transport::HostRegion::kAlignment).count(), weights.count())};
}

absl::StatusOr<std::vector<std::string>> HostRepository::MakeRoom(Bytes size) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<std::string> victims, table_.PlanRoom(size));
  for (const std::string& victim : victims) Forget(victim);
  evictions_ += victims.size();
  return victims;
}

void HostRepository::Publish(const std::string& digest) {
  HostRegionTable::Entry* entry = table_.Find(digest);
  TROUPE_CHECK(entry != nullptr && entry->filling, "only what was reserved is published");
  entry->filling = false;
  if (entry->doomed) Forget(digest);
}

void HostRepository::Abandon(const std::string& digest) {
  const HostRegionTable::Entry* entry = table_.Find(digest);
  TROUPE_CHECK(entry != nullptr && entry->filling, "only what was reserved is abandoned");
  Forget(digest);
}

absl::StatusOr<HostRepository::Adoption> HostRepository::Adopt(const std::string& digest,
                                                               std::span<const std::byte> model,
                                                               std::span<const std::byte> weights) {
  TROUPE_ASSIGN_OR_RETURN(Reservation reservation,
                          Reserve(digest, Bytes(model.size()), Bytes(weights.size())));
  if (reservation.adoption.present) return std::move(reservation.adoption);
  std::copy(model.begin(), model.end(), reservation.model.begin());
  std::copy(weights.begin(), weights.end(), reservation.weights.begin());
  Publish(digest);
  return std::move(reservation.adoption);
}

HostRegionTable::Entry* HostRepository::Visible(const std::string& digest) {
  HostRegionTable::Entry* entry = table_.Find(digest);
  return entry == nullptr || entry->filling || entry->doomed ? nullptr : entry;
}

std::optional<proto::HostCopy> HostRepository::Find(const std::string& digest) {
  HostRegionTable::Entry* entry = Visible(digest);
  if (entry == nullptr) return std::nullopt;
  table_.Touch(*entry);
  return entry->copy;
}

bool HostRepository::Has(const std::string& digest) const {
  const HostRegionTable::Entry* entry = table_.Find(digest);
  return entry != nullptr && !entry->filling && !entry->doomed;
}

absl::StatusOr<proto::HostCopy> HostRepository::Pin(const std::string& digest) {
  HostRegionTable::Entry* entry = Visible(digest);
  if (entry == nullptr) return NotInRegion(digest);
  ++entry->pins;
  table_.Touch(*entry);
  return entry->copy;
}

void HostRepository::Unpin(const std::string& digest) {
  HostRegionTable::Entry* entry = table_.Find(digest);
  TROUPE_CHECK(entry != nullptr && entry->pins > 0, "only what was pinned is unpinned");
  if (--entry->pins == 0 && entry->doomed) Forget(digest);
}

absl::Status HostRepository::Discard(const std::string& digest) {
  HostRegionTable::Entry* entry = table_.Find(digest);
  if (entry == nullptr || entry->doomed) return NotInRegion(digest);
  entry->doomed = true;
  if (entry->evictable()) Forget(digest);
  return absl::OkStatus();
}

void HostRepository::Forget(const std::string& digest) {
  const HostRegionTable::Entry* entry = table_.Find(digest);
  proto::RegionRange range;
  range.set_offset(entry->offset);
  range.set_length(entry->length.count());
  TROUPE_CHECK(region_->Free(range).ok(), "the table and the region agree on what is allocated");
  table_.Erase(digest);
}

std::vector<std::string> HostRepository::List() const {
  std::vector<std::string> digests;
  for (const auto& [digest, entry] : table_.entries()) {
    if (!entry.filling && !entry.doomed) digests.push_back(digest);
  }
  return digests;
}

HostRepository::Usage HostRepository::usage() const {
  return {table_.capacity(), table_.used(), table_.in_use(), table_.entries().size(), evictions_};
}

}  // namespace troupe::storage
