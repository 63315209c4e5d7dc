#include "transport/arena.hpp"

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "transport/host_id.hpp"

namespace troupe::transport {
namespace {

constexpr std::uint64_t kSliceMagic = 0x7472'7570'736c'6963;  // "trupslic"
constexpr Bytes kSliceAlignment = Bytes(sizeof(SliceHeader));
constexpr std::uint64_t kHeader = sizeof(SliceHeader);

// Headers are read by other processes while we write them: word by word, atomically, the identity last and
// cleared first.
void WriteHeader(std::byte* at, const SliceHeader& header) {
  auto* words = reinterpret_cast<std::uint64_t*>(at);
  std::atomic_ref(words[0]).store(header.magic, std::memory_order_relaxed);
  std::atomic_ref(words[1]).store(header.arena, std::memory_order_relaxed);
  std::atomic_ref(words[3]).store(header.length, std::memory_order_relaxed);
  std::atomic_ref(words[2]).store(header.slice, std::memory_order_release);
}

// The mapping may be read-only, where even an atomic load through a non-const reference is fine: it never
// stores.
SliceHeader ReadHeader(std::byte* at) {
  auto* words = reinterpret_cast<std::uint64_t*>(at);
  SliceHeader header{};
  header.slice = std::atomic_ref(words[2]).load(std::memory_order_acquire);
  header.magic = std::atomic_ref(words[0]).load(std::memory_order_relaxed);
  header.arena = std::atomic_ref(words[1]).load(std::memory_order_relaxed);
  header.length = std::atomic_ref(words[3]).load(std::memory_order_relaxed);
  return header;
}

absl::Status NoSlice(std::uint64_t arena, std::uint64_t offset, std::uint64_t slice) {
  return absl::NotFoundError(absl::StrCat("arena ", arena, " has no slice ", slice, " at offset ", offset,
                                          ": it was released before"));
}

}  // namespace

Arena::Arena(MemoryFile memory, std::uint64_t id)
    : memory_(std::move(memory)), id_(id), ranges_(0, memory_.size(), kSliceAlignment) {}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Create(const std::string& name, Bytes capacity) {
  MemoryFile::Options options;
  options.only_creator_writes = true;
  TROUPE_ASSIGN_OR_RETURN(MemoryFile memory, MemoryFile::Create(name, capacity, options));
  return std::shared_ptr<Arena>(new Arena(std::move(memory), UniqueId()));
}

absl::StatusOr<ArenaSlice> Arena::Allocate(Bytes size) {
  const std::lock_guard lock(mutex_);
  const bool sensible = size <= ranges_.capacity();
  const auto begin = sensible ? ranges_.Allocate(size + Bytes(kHeader)) : std::nullopt;
  if (!begin) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no room for ", FormatBytes(size), " in an arena of ", FormatBytes(ranges_.capacity()), ": ",
        FormatBytes(ranges_.free()), " free, largest range ", FormatBytes(ranges_.largest_free())));
  }
  const std::uint64_t offset = *begin + kHeader;
  const std::uint64_t slice = next_slice_++;
  WriteHeader(memory_.data() + *begin, {kSliceMagic, id_, slice, size.count()});
  living_.emplace(offset, Living{slice, size.count(), 1});
  return ArenaSlice{{memory_.data() + offset, size.count()}, offset, slice};
}

absl::StatusOr<Arena::Living*> Arena::Find(std::uint64_t offset, std::uint64_t slice) {
  const auto found = living_.find(offset);
  if (found == living_.end() || found->second.slice != slice) return NoSlice(id_, offset, slice);
  return &found->second;
}

absl::Status Arena::Retain(std::uint64_t offset, std::uint64_t slice) {
  const std::lock_guard lock(mutex_);
  TROUPE_ASSIGN_OR_RETURN(Living* const living, Find(offset, slice));
  ++living->references;
  return absl::OkStatus();
}

absl::Status Arena::Release(std::uint64_t offset, std::uint64_t slice) {
  const std::lock_guard lock(mutex_);
  TROUPE_ASSIGN_OR_RETURN(Living* const living, Find(offset, slice));
  if (--living->references > 0) return absl::OkStatus();
  WriteHeader(memory_.data() + offset - kHeader, {kSliceMagic, id_, 0, 0});
  living_.erase(offset);
  TROUPE_CHECK(ranges_.Free(offset - kHeader), "a living slice has a range");
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> Arena::Pin(std::uint64_t offset, std::uint64_t slice,
                                                      std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  TROUPE_ASSIGN_OR_RETURN(Living* const living, Find(offset, slice));
  if (length > living->length) {
    return absl::DataLossError(absl::StrCat("a reference claims ", length, " bytes of slice ", slice,
                                            ", which has ", living->length));
  }
  ++living->references;
  return std::span<const std::byte>(memory_.data() + offset, length);
}

Bytes Arena::capacity() const {
  return memory_.size();
}

Bytes Arena::used() const {
  const std::lock_guard lock(mutex_);
  return ranges_.used();
}

std::size_t Arena::slices() const {
  const std::lock_guard lock(mutex_);
  return living_.size();
}

absl::StatusOr<std::span<const std::byte>> ResolveSlice(const MemoryFile& memory,
                                                        const proto::ArenaRef& ref) {
  if (ref.offset() < kHeader || ref.offset() % kSliceAlignment.count() != 0 ||
      !memory.Contains(ref.offset(), ref.length())) {
    return absl::DataLossError(absl::StrCat("a reference to ", ref.length(), " bytes at offset ",
                                            ref.offset(), " leaves its arena of ", memory.size().count(),
                                            " bytes"));
  }
  const SliceHeader header = ReadHeader(memory.data() + ref.offset() - kHeader);
  if (header.magic != kSliceMagic || header.arena != ref.arena() || header.slice != ref.slice() ||
      ref.slice() == 0) {
    return NoSlice(ref.arena(), ref.offset(), ref.slice());
  }
  if (ref.length() > header.length) {
    return absl::DataLossError(absl::StrCat("a reference claims ", ref.length(), " bytes of slice ",
                                            ref.slice(), ", which has ", header.length));
  }
  return std::span<const std::byte>(memory.data() + ref.offset(), ref.length());
}

}  // namespace troupe::transport
