// The host tier of a node: adopted models in the one region of shared memory that every worker maps. What
// does not fit stays on disk only, and comes back by being adopted again.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/worker.pb.h"
#include "storage/host_region_table.hpp"
#include "transport/host_region.hpp"

namespace troupe::storage {

// Owner: the node's cache. It has no thread; the caller serialises all members. Only the bytes of a
// Reservation may be filled by another thread meanwhile, so that a large model delays no other.
class HostRepository {
 public:
  struct Adoption {
    proto::HostCopy copy;
    std::vector<std::string> evicted;  // on disk only from now on
    bool present = false;              // it was there already
  };
  // Where a model's bytes go. No reader sees them before Publish.
  struct Reservation {
    Adoption adoption;
    std::span<std::byte> model;
    std::span<std::byte> weights;
  };
  struct Usage {
    Bytes capacity;
    Bytes used;
    Bytes in_use;  // being read or filled: cannot leave
    std::size_t models = 0;
    std::uint64_t evictions = 0;  // since the start
  };

  explicit HostRepository(std::shared_ptr<transport::HostRegion> region);

  // Makes room by evicting the coldest models without readers, and reserves it: the serialised model, then
  // its weights, each at the begin of a page. When the model is there already, the answer says so and no
  // bytes are to be filled. ResourceExhausted: models with readers leave no room now. FailedPrecondition:
  // larger than the region. Unavailable: the same model is being filled. InvalidArgument: there already, with
  // other sizes.
  [[nodiscard]] absl::StatusOr<Reservation> Reserve(const std::string& digest, Bytes model, Bytes weights);
  // The reserved bytes are filled: the model can be found. Not called for a model that was present.
  void Publish(const std::string& digest);
  // They never will be: the room is free again.
  void Abandon(const std::string& digest);
  // Reserve, copy, Publish in one.
  [[nodiscard]] absl::StatusOr<Adoption> Adopt(const std::string& digest, std::span<const std::byte> model,
                                               std::span<const std::byte> weights);

  // Nothing when it is not in the region. Counts as a use.
  [[nodiscard]] std::optional<proto::HostCopy> Find(const std::string& digest);
  [[nodiscard]] bool Has(const std::string& digest) const;
  // A swap reads it until Unpin: it stays. NotFound when it is not there. Counts as a use.
  [[nodiscard]] absl::StatusOr<proto::HostCopy> Pin(const std::string& digest);
  void Unpin(const std::string& digest);
  // Not needed any more: gone at once, or with the last reader. NotFound when it is not there.
  [[nodiscard]] absl::Status Discard(const std::string& digest);

  [[nodiscard]] std::vector<std::string> List() const;  // what can be found, by digest
  [[nodiscard]] Usage usage() const;
  [[nodiscard]] const transport::HostRegion& region() const { return *region_; }

 private:
  absl::StatusOr<std::vector<std::string>> MakeRoom(Bytes size);
  absl::StatusOr<Reservation> Place(const std::string& digest, Bytes model, Bytes weights);
  void Forget(const std::string& digest);
  HostRegionTable::Entry* Visible(const std::string& digest);

  const std::shared_ptr<transport::HostRegion> region_;
  HostRegionTable table_;
  std::uint64_t evictions_ = 0;
};

}  // namespace troupe::storage
