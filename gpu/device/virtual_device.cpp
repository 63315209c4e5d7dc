#include "gpu/device/virtual_device.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/device/compute_lanes.hpp"
#include "gpu/device/device_ranges.hpp"
#include "gpu/device/memory_warmer.hpp"
#include "gpu/device/tensor_bytes.hpp"
#include "gpu/device/virtual_copy.hpp"
#include "gpu/device/virtual_engine.hpp"
#include "gpu/device/virtual_mappings.hpp"
#include "gpu/device/virtual_peers.hpp"
#include "gpu/device/virtual_stream.hpp"
#include "transport/local_broadcast.hpp"

namespace troupe::gpu {
namespace {

// A Hopper GPU's SMs are given away in eights.
constexpr std::uint32_t kShareUnit = 8;

// Memory that is not the device's, as one end of a copy: what is only read is not written.
DeviceRange Outside(const std::byte* address, std::size_t size) {
  return {const_cast<std::byte*>(address), Bytes(size)};
}

// Both ends have as many bytes, in pieces of their own.
std::vector<CopySpan> Spans(const std::vector<DeviceRange>& to, const std::vector<DeviceRange>& from) {
  std::vector<CopySpan> spans;
  std::size_t target = 0;
  std::size_t source = 0;
  Bytes in_target;
  Bytes in_source;
  while (target < to.size() && source < from.size()) {
    const std::uint64_t length =
        std::min(to[target].size.count() - in_target.count(), from[source].size.count() - in_source.count());
    spans.push_back(
        {to[target].address + in_target.count(), from[source].address + in_source.count(), length});
    in_target += Bytes(length);
    in_source += Bytes(length);
    if (in_target == to[target].size) ++target, in_target = Bytes(0);
    if (in_source == from[source].size) ++source, in_source = Bytes(0);
  }
  return spans;
}

// Host memory that the device knows. Thread-safe.
class RegisteredMemory {
 public:
  void Add(std::span<const std::byte> memory) {
    const std::lock_guard lock(mutex_);
    ranges_.insert({memory.data(), memory.size()});
  }
  void Remove(std::span<const std::byte> memory) {
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find({memory.data(), memory.size()});
    if (found != ranges_.end()) ranges_.erase(found);
  }
  [[nodiscard]] bool Has(std::span<const std::byte> host) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& known) {
      return host.data() >= known.first && host.data() + host.size() <= known.first + known.second;
    });
  }

 private:
  mutable std::mutex mutex_;
  std::multiset<std::pair<const std::byte*, std::size_t>> ranges_;  // guarded by mutex_
};

// The ways and the engines of the device's copies.
struct CopyPaths {
  CopyPath in;
  CopyPath out;
  CopyPath within;  // no link
};
struct CopyEngines {
  VirtualEngine in{nullptr};
  VirtualEngine out{nullptr};
  VirtualEngine peer{nullptr};
};

class VirtualDevice final : public Device {
 public:
  VirtualDevice(VirtualDeviceOptions options, transport::MemoryFile memory)
      : options_(std::move(options)),
        memory_(std::make_shared<const transport::MemoryFile>(std::move(memory))),
        ranges_(options_.name, {memory_->data(), memory_->size() - options_.reserved}),
        info_{options_.name,
              options_.pack_target,
              ranges_.use().total,
              {},
              options_.concurrency,
              options_.link_from != nullptr,
              false,
              {},
              {}},
        peers_(options_.link_from),
        compute_(options_.concurrency, options_.threads) {
    info_.shares = ShareLadder(options_.sms, kShareUnit, options_.sms / kShareUnit);
  }

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<DeviceRange> Allocate(Bytes size) override { return ranges_.Allocate(size); }
  void Free(const DeviceRange& range) override { ranges_.Free(range); }
  [[nodiscard]] MemoryUse memory() const override { return ranges_.use(); }

  absl::StatusOr<std::shared_ptr<DevicePlan>> Prepare(const proto::Model& model,
                                                      std::span<const std::byte> weights,
                                                      std::span<const proto::TensorSpec> inputs,
                                                      proto::Precision) override {
    TROUPE_ASSIGN_OR_RETURN(auto ordered, OrderInputs(model, inputs));
    if (options_.timed) {
      return MakeTimedPlan(model, std::move(ordered), CostOf(*options_.timed, model));
    }
    // The primitives are made for the number of threads of the thread that makes them.
    omp_set_num_threads(options_.threads);
    return MakeRealPlan(model, weights, std::move(ordered), options_.builder, options_.threads,
                        CostOf(options_.profile, model).saturation);
  }

  std::unique_ptr<Stream> MakeStream() override {
    VirtualStream::Factory factory;
    const auto device = [this](const DeviceRange& range) { return mappings_.Behind(range); };
    factory.copy_in = [this, device](DeviceRange to, std::span<const std::byte> from, OnComplete done) {
      to.size = Bytes(from.size());
      return std::make_shared<CopyOperation>(Spans(device(to), {Outside(from.data(), from.size())}),
                                             Staged(from), paths_.in, std::move(done));
    };
    factory.copy_out = [this, device](std::span<std::byte> to, DeviceRange from, OnComplete done) {
      from.size = Bytes(to.size());
      return std::make_shared<CopyOperation>(Spans({Outside(to.data(), to.size())}, device(from)), Staged(to),
                                             paths_.out, std::move(done));
    };
    factory.copy_within = [this, device](DeviceRange to, DeviceRange from, OnComplete done) {
      to.size = from.size;
      return std::make_shared<CopyOperation>(Spans(device(to), device(from)), false, paths_.within,
                                             std::move(done));
    };
    factory.copy_peer = [device](DeviceRange to, const std::shared_ptr<const PeerMemory>& from, Bytes offset,
                                 OnComplete done) {
      const auto& peer = static_cast<const VirtualPeerMemory&>(*from);
      return std::make_shared<CopyOperation>(Spans(device(to), peer.At(offset, to.size)), false, peer.path(),
                                             std::move(done), from);
    };
    factory.in = &copies_.in;
    factory.out = &copies_.out;
    factory.compute = &compute_;
    factory.peer = &copies_.peer;
    return std::make_unique<VirtualStream>(std::move(factory));
  }

  absl::Status RegisterHost(std::span<const std::byte> memory) override {
    registered_.Add(memory);
    return absl::OkStatus();
  }
  void UnregisterHost(std::span<const std::byte> memory) override { registered_.Remove(memory); }

  absl::Status UseLinks(std::shared_ptr<transport::LinkBuckets> links) override {
    TROUPE_RETURN_IF_ERROR(paths_.in.Use(links, options_.link_in));
    peers_.UseLinks(links);
    return paths_.out.Use(std::move(links), options_.link_out);
  }

  [[nodiscard]] Bytes MappingUnit() const override { return KiB(4); }
  absl::StatusOr<DeviceRange> Map(std::uint64_t address, std::span<const DeviceRange> pieces) override {
    return mappings_.Map(address, pieces);
  }
  void Unmap(const DeviceRange& mapped) override { mappings_.Unmap(mapped); }

  absl::StatusOr<bool> Holds(const DeviceRange& range, std::span<const std::byte> bytes) override {
    TROUPE_CHECK(bytes.size() <= range.size.count(), "a range was compared with more bytes than it has");
    std::size_t at = 0;
    for (const DeviceRange& piece : mappings_.Behind(range.Part(Bytes(0), Bytes(bytes.size())))) {
      if (std::memcmp(piece.address, bytes.data() + at, piece.size.count()) != 0) return false;
      at += piece.size.count();
    }
    return true;
  }

  absl::StatusOr<SharedRange> Share(const DeviceRange& shared) override {
    SharedRange range;
    for (const DeviceRange& piece : mappings_.Behind(shared)) {
      const std::ptrdiff_t offset = piece.address - memory_->data();
      TROUPE_CHECK(offset >= 0 && memory_->Contains(static_cast<std::uint64_t>(offset), piece.size.count()),
                   "a range was shared that is not of this device");
      const Bytes begin(static_cast<std::uint64_t>(offset));
      if (!range.parts.empty() && range.parts.back().offset + range.parts.back().size == begin)
        range.parts.back().size += piece.size;
      else
        range.parts.push_back({begin, piece.size});
    }
    TROUPE_ASSIGN_OR_RETURN(range.descriptor, memory_->ReadOnlyDescriptor());
    return range;
  }
  absl::StatusOr<std::shared_ptr<const PeerMemory>> OpenPeer(std::uint32_t gpu, SharedRange range) override {
    return peers_.Open(gpu, std::move(range));
  }
  [[nodiscard]] transport::Broadcaster* broadcaster() override {
    return info_.peer_copies ? &broadcaster_ : nullptr;
  }

  absl::Status ReadLink(const std::shared_ptr<transport::LinkBuckets>& links) {
    if (links == nullptr) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(const std::size_t link, links->Find(options_.link_in));
    info_.link = links->bandwidth(link);
    return absl::OkStatus();
  }

  [[nodiscard]] absl::Status Health() const override { return absl::OkStatus(); }

  [[nodiscard]] EngineState engine(Engine which) const override {
    switch (which) {
      case Engine::kCopyIn:
        return copies_.in.state();
      case Engine::kCopyOut:
        return copies_.out.state();
      case Engine::kCompute:
        return compute_.state();
      case Engine::kCopyPeer:
        return copies_.peer.state();
    }
    return {};
  }

  [[nodiscard]] Duration compute_busy() const override { return compute_.busy_time(); }

  absl::Status HangCompute() override {
    compute_.Freeze();
    return absl::OkStatus();
  }
  absl::Status StallCopies() override {
    copies_.in.Freeze(false);
    copies_.out.Freeze(false);
    copies_.peer.Freeze(false);
    return absl::OkStatus();
  }

 private:
  // Small copies are staged by every driver within the call; they cost nothing more here.
  [[nodiscard]] bool Staged(std::span<const std::byte> host) const {
    return host.size() > CopyOperation::kSmall && !registered_.Has(host);
  }
  [[nodiscard]] static RunCost CostOf(const ComputeProfile& profile, const proto::Model& model) {
    return profile.CostOf(model.weights_digest(), model.onnx_digest());
  }

  const VirtualDeviceOptions options_;
  const std::shared_ptr<const transport::MemoryFile> memory_;
  DeviceRanges ranges_;
  RegisteredMemory registered_;
  DeviceInfo info_;
  CopyPaths paths_;
  VirtualMappings mappings_{memory_};
  VirtualPeers peers_;
  transport::LocalBroadcaster broadcaster_{[this](std::uint32_t from) { return peers_.WayFrom(from); },
                                           options_.broadcast_socket};
  CopyEngines copies_;  // the engines' threads end before what they use
  ComputeLanes compute_;
  MemoryWarmer warmer_{memory_};
};

}  // namespace

DeviceRange DeviceRange::Part(Bytes offset, Bytes length) const {
  TROUPE_CHECK(offset <= size && length <= size - offset, "a part outside of its device range");
  return {address + offset.count(), length};
}

absl::StatusOr<std::unique_ptr<Device>> MakeVirtualDevice(VirtualDeviceOptions options,
                                                          transport::MemoryFile memory,
                                                          std::shared_ptr<transport::LinkBuckets> links) {
  TROUPE_CHECK(options.timed || options.builder, "a virtual GPU needs a profile or a plan builder");
  if (options.reserved >= memory.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory of ", options.name, " has ", FormatBytes(memory.size()), ", of which ",
                     FormatBytes(options.reserved), " are to be the record of its weights: nothing is left"));
  }
  auto device = std::make_unique<VirtualDevice>(std::move(options), std::move(memory));
  TROUPE_RETURN_IF_ERROR(device->ReadLink(links));
  TROUPE_RETURN_IF_ERROR(device->UseLinks(std::move(links)));
  return device;
}

}  // namespace troupe::gpu
