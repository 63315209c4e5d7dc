// The host tier of a node, by isolation key: a memory file for the models of each key, since a process that
// holds a memory file can read all of it. The files share one budget. Shared workers map the file without a
// key; on a node without isolation it is the only one, made at the start with huge pages where they can be
// had.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "storage/host_repository.hpp"
#include "transport/host_region.hpp"

namespace troupe::storage {

// Owner: the node's cache. The caller serialises all members, and those of the repositories, except GiveBack.
class HostSegments {
 public:
  struct Options {
    std::string name;
    Bytes budget = GiB(1);
    bool huge_pages = false;  // of the shared one, unless the node isolates
    bool isolated = false;    // the shared one gives its pages back, as the others always do
    bool registered = false;  // workers register the files with a GPU
  };
  using RegionPtr = std::shared_ptr<transport::HostRegion>;

  static absl::StatusOr<std::unique_ptr<HostSegments>> Create(Options options);

  // Room for a model of this key, as HostRepository::Reserve: ResourceExhausted also when the others have
  // used up the budget. The repository, for all else, is that of the key.
  absl::StatusOr<HostRepository::Reservation> Reserve(const std::string& key, const std::string& digest,
                                                      Bytes model, Bytes weights);
  // Null: it has no models.
  [[nodiscard]] HostRepository* Find(const std::string& key);
  // The memory that a worker of this key maps. While it is held, the key's models are placed in it.
  absl::StatusOr<RegionPtr> RegionOf(const std::string& key);
  // A region without room, for a worker that serves no key yet.
  [[nodiscard]] const RegionPtr& empty_region() const { return empty_region_; }

  // Returns the pages of what was freed to the system. Slow; any thread, beside any other call.
  static void GiveBack(const std::vector<RegionPtr>& regions);
  [[nodiscard]] std::vector<RegionPtr> Regions() const;
  // Lets go of the files without models that no worker maps.
  void DropEmpty();

  [[nodiscard]] HostRepository::Usage usage() const;  // of all
  [[nodiscard]] std::size_t size() const { return segments_.size(); }
  [[nodiscard]] bool huge_pages() const;  // of the shared one

 private:
  struct Segment {
    RegionPtr region;
    std::unique_ptr<HostRepository> models;
  };
  explicit HostSegments(Options options) : options_(std::move(options)) {}
  absl::StatusOr<Segment*> At(const std::string& key);

  const Options options_;
  RegionPtr empty_region_;
  std::map<std::string, Segment> segments_;
};

}  // namespace troupe::storage
