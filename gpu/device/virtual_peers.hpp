// Other virtual GPUs as one copies from them: their memory files, and the links between.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"
#include "gpu/device/virtual_copy.hpp"
#include "transport/link_state.hpp"
#include "transport/local_broadcast.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

// The way from one other GPU to this one.
using PeerPath = std::shared_ptr<CopyPath>;

class VirtualPeerMemory final : public PeerMemory {
 public:
  // The parts lie in the memory.
  VirtualPeerMemory(std::shared_ptr<const transport::MemoryFile> memory,
                    std::span<const SharedRange::Part> parts, PeerPath path);
  [[nodiscard]] Bytes size() const override { return size_; }
  // Where these bytes of the range lie, in order; they are only read.
  [[nodiscard]] std::vector<DeviceRange> At(Bytes offset, Bytes size) const;
  [[nodiscard]] CopyPath& path() const { return *path_; }

 private:
  const std::shared_ptr<const transport::MemoryFile> memory_;
  std::map<Bytes, DeviceRange> parts_;  // by their place in the range
  Bytes size_;
  const PeerPath path_;
};

// Keeps each GPU's memory mapped from one copy to the next: its pages are found once. The next worker of that
// GPU uses the same file, so its owner has to be asked whether the bytes are still those that were pinned.
// Thread-safe.
class VirtualPeers {
 public:
  using LinkName = std::function<std::string(std::uint32_t from)>;
  explicit VirtualPeers(LinkName link_name) : link_name_(std::move(link_name)) {}
  // From now on copies pass these links.
  void UseLinks(std::shared_ptr<transport::LinkBuckets> links);
  absl::StatusOr<std::shared_ptr<const PeerMemory>> Open(std::uint32_t gpu, SharedRange range);
  // What a broadcast from that GPU passes.
  absl::StatusOr<transport::LocalBroadcaster::Way> WayFrom(std::uint32_t gpu);

 private:
  struct Peer {
    PeerPath path = std::make_shared<CopyPath>();
    std::shared_ptr<const transport::MemoryFile> memory;
  };
  absl::StatusOr<std::shared_ptr<const transport::MemoryFile>> Map(Peer& peer,
                                                                   transport::UniqueFd descriptor);
  const LinkName link_name_;
  std::mutex mutex_;
  std::shared_ptr<transport::LinkBuckets> links_;  // guarded by mutex_
  std::map<std::uint32_t, Peer> peers_;            // by GPU; guarded by mutex_
};

}  // namespace troupe::gpu
