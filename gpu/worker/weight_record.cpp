#include "gpu/worker/weight_record.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/worker/host_model.hpp"

namespace troupe::gpu {
namespace {

constexpr std::uint64_t kMagic = 0x74726f7570657731;  // "troupew1"; another layout has another one

struct Slot {
  std::atomic<std::uint32_t> valid;  // written last, cleared first
  std::uint32_t length;              // of the digest
  std::uint64_t offset;
  std::uint64_t size;
  char digest[WeightRecord::kLongestDigest];
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "the record is shared memory");

// Nothing in a slot is trusted.
absl::StatusOr<RecordedWeights> ReadSlot(const Slot& slot) {
  const std::uint32_t length = slot.length;
  if (length == 0 || length > WeightRecord::kLongestDigest) {
    return absl::DataLossError(absl::StrCat("a digest has 1 to ", WeightRecord::kLongestDigest,
                                            " characters, the record says ", length));
  }
  RecordedWeights weights{std::string(slot.digest, length), slot.offset, Bytes(slot.size)};
  TROUPE_RETURN_IF_ERROR(CheckDigest(weights.digest));
  return weights;
}

}  // namespace

struct WeightRecord::Page {
  std::atomic<std::uint64_t> magic;
  Slot slots[kModels];
};

Bytes WeightRecord::Size() {
  return AlignUp(Bytes(sizeof(Page)), KiB(4));
}

absl::StatusOr<std::unique_ptr<WeightRecord>> WeightRecord::Open(transport::UniqueFd memory, Bytes size) {
  if (size != Size()) {
    return absl::InvalidArgumentError(absl::StrCat("a record of weights has ", Size().count(),
                                                   " bytes, the daemon's has ", size.count(),
                                                   ": it is of another build, and no weights are kept"));
  }
  TROUPE_ASSIGN_OR_RETURN(
      auto file, transport::MemoryFile::Open(std::move(memory), transport::MemoryFile::Access::kReadWrite));
  if (file.size() <= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory of ", file.size().count(), " bytes has no room for a record of ", size.count()));
  }
  return std::unique_ptr<WeightRecord>(new WeightRecord(std::move(file)));
}

WeightRecord::WeightRecord(transport::MemoryFile memory) : memory_(std::move(memory)) {
  for (std::size_t slot = kModels; slot-- > 0;) free_.push_back(slot);
}

WeightRecord::Page& WeightRecord::page() const {
  return *std::launder(reinterpret_cast<Page*>(memory_.data() + (memory_.size() - Size()).count()));
}

bool WeightRecord::empty() const {
  return page().magic.load(std::memory_order_acquire) != kMagic ||
         std::ranges::none_of(
             page().slots, [](const Slot& slot) { return slot.valid.load(std::memory_order_acquire) != 0; });
}

void WeightRecord::Clear(std::size_t slot) {
  page().slots[slot].valid.store(0, std::memory_order_release);
}

std::vector<RecordedWeights> WeightRecord::Read(std::vector<std::string>& dropped) {
  TROUPE_CHECK(slots_.empty(), "a record is read once, before it is written to");
  const std::uint64_t magic = page().magic.load(std::memory_order_acquire);
  if (magic != kMagic) {
    if (magic != 0) dropped.push_back("the record of weights is damaged, or of another build");
    for (std::size_t slot = 0; slot < kModels; ++slot) Clear(slot);
    page().magic.store(kMagic, std::memory_order_release);
    return {};
  }
  std::vector<RecordedWeights> found;
  free_.clear();
  for (std::size_t slot = kModels; slot-- > 0;) {
    if (page().slots[slot].valid.load(std::memory_order_acquire) == 0) {
      free_.push_back(slot);
      continue;
    }
    absl::StatusOr<RecordedWeights> read = ReadSlot(page().slots[slot]);
    if (read.ok() && !slots_.emplace(read->digest, slot).second)
      read = absl::DataLossError(absl::StrCat("model ", read->digest, " is on record twice"));
    if (read.ok()) {
      found.push_back(*std::move(read));
      continue;
    }
    dropped.push_back(std::string(read.status().message()));
    Clear(slot);
    free_.push_back(slot);
  }
  return found;
}

void WeightRecord::Set(const RecordedWeights& weights) {
  Remove(weights.digest);
  if (free_.empty() || weights.digest.size() > kLongestDigest) return;
  const std::size_t at = free_.back();
  free_.pop_back();
  slots_.emplace(weights.digest, at);
  Slot& slot = page().slots[at];
  slot.length = static_cast<std::uint32_t>(weights.digest.size());
  slot.offset = weights.offset;
  slot.size = weights.size.count();
  std::memcpy(slot.digest, weights.digest.data(), weights.digest.size());
  slot.valid.store(1, std::memory_order_release);
}

void WeightRecord::Remove(const std::string& digest) {
  const auto found = slots_.find(digest);
  if (found == slots_.end()) return;
  Clear(found->second);
  free_.push_back(found->second);
  slots_.erase(found);
}

}  // namespace troupe::gpu
