#include "gpu/device/virtual_peers.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {

using transport::MemoryFile;

void VirtualPeers::UseLinks(std::shared_ptr<transport::LinkBuckets> links) {
  const std::lock_guard lock(mutex_);
  links_ = std::move(links);
  // A link that is not there any more: who opens that GPU's memory next is told so.
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
  if (!memory->Contains(range.offset.count(), range.size.count())) {
    return absl::OutOfRangeError(absl::StrCat(range.size.count(), " bytes at ", range.offset.count(),
                                              " leave the memory of GPU ", gpu, ", which has ",
                                              FormatBytes(memory->size())));
  }
  return std::make_shared<const VirtualPeerMemory>(std::move(memory), range.offset, range.size, peer.path);
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
