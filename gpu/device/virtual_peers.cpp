#include "gpu/device/virtual_peers.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::gpu {

using transport::MemoryFile;

VirtualPeerMemory::VirtualPeerMemory(std::shared_ptr<const MemoryFile> memory,
                                     std::span<const SharedRange::Part> parts, PeerPath path)
    : memory_(std::move(memory)), path_(std::move(path)) {
  for (const SharedRange::Part& part : parts) {
    auto* const begin = const_cast<std::byte*>(memory_->data() + part.offset.count());
    if (part.size > Bytes(0)) parts_.emplace(size_, DeviceRange{begin, part.size});
    size_ += part.size;
  }
}

std::vector<DeviceRange> VirtualPeerMemory::At(Bytes offset, Bytes size) const {
  TROUPE_CHECK(offset <= size_ && size <= size_ - offset, "bytes outside of what another GPU shares");
  std::vector<DeviceRange> ranges;
  if (size == Bytes(0)) return ranges;
  for (auto part = std::prev(parts_.upper_bound(offset)); size > Bytes(0); ++part) {
    const Bytes skip = offset - part->first;
    const Bytes length = std::min(size, part->second.size - skip);
    ranges.push_back(part->second.Part(skip, length));
    offset += length;
    size -= length;
  }
  return ranges;
}

void VirtualPeers::UseLinks(std::shared_ptr<transport::LinkBuckets> links) {
  const std::lock_guard lock(mutex_);
  links_ = std::move(links);
  // The link does not exist any more: the next call that opens that GPU's memory is told so.
  std::erase_if(peers_,
                [&](auto& peer) { return !peer.second.path->Use(links_, link_name_(peer.first)).ok(); });
}

absl::StatusOr<std::shared_ptr<const PeerMemory>> VirtualPeers::Open(std::uint32_t gpu, SharedRange range) {
  if (!link_name_) return absl::NotFoundError("this device has no links to other GPUs");
  const std::lock_guard lock(mutex_);
  const auto [place, fresh] = peers_.try_emplace(gpu);
  Peer& peer = place->second;
  if (fresh) {
    if (const absl::Status used = peer.path->Use(links_, link_name_(gpu)); !used.ok()) {
      peers_.erase(place);
      return used;
    }
  }
  TROUPE_ASSIGN_OR_RETURN(auto memory, Map(peer, std::move(range.descriptor)));
  for (const SharedRange::Part& part : range.parts) {
    if (memory->Contains(part.offset.count(), part.size.count())) continue;
    return absl::OutOfRangeError(absl::StrCat(part.size.count(), " bytes at ", part.offset.count(),
                                              " leave the memory of GPU ", gpu, ", which has ",
                                              FormatBytes(memory->size())));
  }
  return std::make_shared<const VirtualPeerMemory>(std::move(memory), range.parts, peer.path);
}

absl::StatusOr<transport::LocalBroadcaster::Way> VirtualPeers::WayFrom(std::uint32_t gpu) {
  if (!link_name_) return absl::NotFoundError("this device has no links to other GPUs");
  const std::lock_guard lock(mutex_);
  if (links_ == nullptr) return transport::LocalBroadcaster::Way();
  TROUPE_ASSIGN_OR_RETURN(const std::size_t link, links_->Find(link_name_(gpu)));
  return transport::LocalBroadcaster::Way{links_, links_->PathOf(link)};
}

// The file that is mapped already, when it is the same one: mapped memory keeps its inode's number.
absl::StatusOr<std::shared_ptr<const MemoryFile>> VirtualPeers::Map(Peer& peer,
                                                                    transport::UniqueFd descriptor) {
  struct stat now {};
  struct stat known {};
  if (fstat(descriptor.get(), &now) != 0)
    return transport::ErrnoStatus(errno, "looking at another GPU's memory");
  if (peer.memory != nullptr && fstat(peer.memory->fd(), &known) == 0 && now.st_dev == known.st_dev &&
      now.st_ino == known.st_ino) {
    return peer.memory;
  }
  TROUPE_ASSIGN_OR_RETURN(MemoryFile memory,
                          MemoryFile::Open(std::move(descriptor), MemoryFile::Access::kReadOnly));
  peer.memory = std::make_shared<const MemoryFile>(std::move(memory));
  return peer.memory;
}

}  // namespace troupe::gpu
