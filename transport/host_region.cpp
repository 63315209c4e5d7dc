#include "transport/host_region.hpp"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/host_id.hpp"

namespace troupe::transport {
namespace {

constexpr std::uint64_t kRegionMagic = 0x7472'7570'686f'7374;  // "truphost"
constexpr std::uint32_t kRegionVersion = 2;
constexpr std::uint64_t kRegionHeaderSize = HostRegion::kAlignment.count();
static_assert(sizeof(HostRegionHeader) <= kRegionHeaderSize);

}  // namespace

HostRegion::HostRegion(MemoryFile memory, UniqueFd read_only, const Options& options,
                       std::uint64_t generation)
    : memory_(std::move(memory)),
      read_only_(std::move(read_only)),
      gives_back_(options.gives_back),
      generation_(generation),
      ranges_(kRegionHeaderSize, memory_.size() - Bytes(kRegionHeaderSize), kAlignment) {}

absl::StatusOr<std::unique_ptr<HostRegion>> HostRegion::Create(const std::string& name, Options options) {
  MemoryFile::Options file;
  file.huge_pages = options.huge_pages;
  file.only_creator_writes = !options.gives_back && !options.readers_register;
  file.gives_back = options.gives_back && !options.readers_register;
  if (options.size > GiB(std::uint64_t{1} << 16)) {
    return absl::InvalidArgumentError(
        absl::StrCat("host region of ", FormatBytes(options.size), ": at most 64 TiB"));
  }
  TROUPE_ASSIGN_OR_RETURN(MemoryFile memory,
                          MemoryFile::Create(name, options.size + Bytes(kRegionHeaderSize), file));
  const std::uint64_t generation = UniqueId();
  new (memory.data())
      HostRegionHeader{kRegionMagic, kRegionVersion, 0, memory.size().count(), generation, 0, {}};
  UniqueFd read_only;
  if (file.gives_back) {
    TROUPE_ASSIGN_OR_RETURN(read_only, memory.ReadOnly());
  }
  return std::unique_ptr<HostRegion>(
      new HostRegion(std::move(memory), std::move(read_only), options, generation));
}

absl::StatusOr<proto::RegionRange> HostRegion::Allocate(Bytes size) {
  const std::lock_guard lock(mutex_);
  const auto offset = ranges_.Allocate(size);
  if (!offset) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no room for ", FormatBytes(size), " in a host region of ", FormatBytes(ranges_.capacity()), ": ",
        FormatBytes(ranges_.free()), " free, largest range ", FormatBytes(ranges_.largest_free())));
  }
  proto::RegionRange range;
  range.set_offset(*offset);
  range.set_length(size.count());
  return range;
}

absl::Status HostRegion::Free(const proto::RegionRange& range) {
  const std::lock_guard lock(mutex_);
  if (gives_back_ && ranges_.LengthAt(range.offset())) {
    freed_.push_back(range);
    return absl::OkStatus();
  }
  if (ranges_.Free(range.offset())) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no range of the host region begins at ", range.offset()));
}

void HostRegion::GiveBack() {
  std::vector<proto::RegionRange> freed;
  {
    const std::lock_guard lock(mutex_);
    freed.swap(freed_);
  }
  for (const auto& range : freed) {
    // A system that cannot is short of what it would have had; the room is ours again all the same.
    static_cast<void>(memory_.GiveBack(range.offset(), AlignUp(Bytes(range.length()), kAlignment).count()));
    const std::lock_guard lock(mutex_);
    NoteGivenBack(range);
    static_cast<void>(ranges_.Free(range.offset()));
  }
}

// Behind the exchange of its pages and before the range is used again: readers that registered it before let go
// of it, and those that register it from now on see the pages that stay.
void HostRegion::NoteGivenBack(const proto::RegionRange& range) {
  auto& header = *reinterpret_cast<HostRegionHeader*>(memory_.data());
  const std::uint64_t number = header.given_back.load(std::memory_order_relaxed);
  HostRegionHeader::GivenBack& told = header.ranges[number % HostRegionHeader::kGivenBack];
  told.offset.store(range.offset(), std::memory_order_relaxed);
  told.length.store(AlignUp(Bytes(range.length()), kAlignment).count(), std::memory_order_relaxed);
  header.given_back.store(number + 1, std::memory_order_release);
}

absl::StatusOr<std::span<std::byte>> HostRegion::Writable(const proto::RegionRange& range) {
  const std::lock_guard lock(mutex_);
  const auto length = ranges_.LengthAt(range.offset());
  if (!length || Bytes(range.length()) > *length) {
    return absl::NotFoundError(
        absl::StrCat("no range of the host region has ", range.length(), " bytes at ", range.offset()));
  }
  return std::span<std::byte>(memory_.data() + range.offset(), range.length());
}

Bytes HostRegion::capacity() const {
  return ranges_.capacity();
}

Bytes HostRegion::used() const {
  const std::lock_guard lock(mutex_);
  return ranges_.used();
}

Bytes HostRegion::largest_free() const {
  const std::lock_guard lock(mutex_);
  return ranges_.largest_free();
}

absl::StatusOr<HostRegionView> HostRegionView::Open(UniqueFd fd) {
  HostRegionView view;
  TROUPE_ASSIGN_OR_RETURN(view.memory_, MemoryFile::Open(std::move(fd), MemoryFile::Access::kReadOnly));
  const auto& header = *reinterpret_cast<const HostRegionHeader*>(view.memory_.data());
  if (header.magic != kRegionMagic || header.version != kRegionVersion ||
      header.size != view.memory_.size().count()) {
    return absl::InvalidArgumentError(
        "received shared memory is not a host region of this version of Troupe");
  }
  view.generation_ = header.generation;
  return view;
}

absl::StatusOr<std::span<const std::byte>> HostRegionView::Resolve(const proto::RegionRange& range) const {
  if (range.offset() < kRegionHeaderSize || !memory_.Contains(range.offset(), range.length())) {
    return absl::OutOfRangeError(absl::StrCat("range of ", range.length(), " bytes at ", range.offset(),
                                              " leaves the host region of ", memory_.size().count(),
                                              " bytes"));
  }
  return std::span<const std::byte>(memory_.data() + range.offset(), range.length());
}

std::uint64_t HostRegionView::GivenBackMark() const {
  return header().given_back.load(std::memory_order_acquire);
}

// The daemon may write on while this reads, and is not trusted to write what makes sense: entries that may have
// been written over count as if all pages had been exchanged.
std::vector<std::span<const std::byte>> HostRegionView::GivenBackSince(std::uint64_t& since) const {
  constexpr std::uint64_t kRing = HostRegionHeader::kGivenBack;
  const std::uint64_t now = GivenBackMark();
  const std::uint64_t begin = std::exchange(since, now);
  if (begin == now) return {};
  const auto all = [this] { return std::vector<std::span<const std::byte>>{bytes()}; };
  if (now - begin > kRing) return all();
  std::vector<std::span<const std::byte>> ranges;
  for (std::uint64_t number = begin; number != now; ++number) {
    const auto& told = header().ranges[number % kRing];
    const std::uint64_t offset = told.offset.load(std::memory_order_relaxed);
    const std::uint64_t length = told.length.load(std::memory_order_relaxed);
    if (!memory_.Contains(offset, length)) return all();
    ranges.push_back(bytes().subspan(offset, length));
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return header().given_back.load(std::memory_order_relaxed) - begin >= kRing ? all() : ranges;
}

}  // namespace troupe::transport
