// What a daemon has round real GPU workers, for measuring.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "bench/lines.hpp"
#include "gpu/worker/worker_client.hpp"
#include "gpu/worker/worker_process.hpp"
#include "proto/model.pb.h"
#include "transport/host_region.hpp"
#include "transport/link_state.hpp"
#include "transport/local_channel.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::bench {

inline constexpr Duration kPatience = std::chrono::seconds(120);

// A measurement that cannot be made ends the program.
template <class T>
T Value(absl::StatusOr<T> value, const char* what) {
  if (!value.ok()) std::fprintf(stderr, "%s: %s\n", what, value.status().ToString().c_str());
  if (!value.ok()) std::exit(1);
  return *std::move(value);
}

// What every worker of a bench uses: the host region, the virtual GPU's memory (none when their device has
// its own) and a directory for sockets. Workers that are measured in turn, never at once, may use one memory.
class Site {
 public:
  Site(Bytes host, Bytes device) {
    std::string directory = std::filesystem::temp_directory_path() / "troupe-bench-XXXXXX";
    TROUPE_CHECK(mkdtemp(directory.data()) != nullptr, "no temporary directory");
    directory_ = directory;
    transport::HostRegion::Options options;
    options.size = host;
    options.readers_register = device == Bytes(0);
    host_ = Value(transport::HostRegion::Create("bench", options), "host region");
    if (device > Bytes(0)) {
      for (transport::MemoryFile* memory : {&memory_, &other_memory_})
        *memory = Value(CreateVirtualMemory(0, device), "device memory");
      TouchMemory(memory_);
    }
    transport::LocalChannel::Options channel;
    channel.socket = directory_ + "/inputs";
    channel.capacity = MiB(64);
    channel_ = Value(transport::LocalChannel::Create(channel), "channel");
  }
  ~Site() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  [[nodiscard]] proto::RegionRange Place(std::span<const std::byte> bytes) {
    auto range = Value(host_->Allocate(Bytes(bytes.size())), "room");
    std::memcpy(Value(host_->Writable(range), "room").data(), bytes.data(), bytes.size());
    return range;
  }
  [[nodiscard]] proto::HostCopy PlaceModel(const std::string& digest, const proto::Model& model,
                                           const proto::RegionRange& weights) {
    proto::HostCopy copy;
    copy.set_digest(digest);
    const std::string description = model.SerializeAsString();
    *copy.mutable_model() = Place(std::as_bytes(std::span(description)));
    *copy.mutable_weights() = weights;
    return copy;
  }

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] transport::HostRegion& host() { return *host_; }
  [[nodiscard]] transport::MemoryFile& memory() { return memory_; }
  // The memory of a second worker that runs at the same time.
  [[nodiscard]] transport::MemoryFile& other_memory() { return other_memory_; }
  [[nodiscard]] transport::LocalChannel& channel() { return *channel_; }

 private:
  std::string directory_;
  std::unique_ptr<transport::HostRegion> host_;
  transport::MemoryFile memory_;
  transport::MemoryFile other_memory_;
  std::shared_ptr<transport::LocalChannel> channel_;
};

// One worker process, adopted; it is killed at the end.
class Rig {
 public:
  Rig(Site& site, WorkerCommand command, transport::LinkBuckets& links, transport::MemoryFile& memory)
      : Rig(site, std::move(command), AdoptionGifts{site.host().fd(), memory.fd(), links.fd()}) {}
  Rig(Site& site, WorkerCommand command, const AdoptionGifts& gifts) {
    static int rigs = 0;
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    command.program = (here / "troupe-gpu-worker").string();
    command.socket = absl::StrCat(site.directory(), "/w", ++rigs);
    command.lease = Duration(0);
    auto process = Value(StartWorker(command), "worker");
    proto::AdoptHello hello;
    hello.set_gpu(command.gpu);
    hello.set_daemon_epoch(1);
    hello.set_run_directory(site.directory());
    connection_ = Value(WorkerConnection::Adopt(command.socket, hello, gifts, std::move(process), kPatience),
                        "adoption");
  }
  // When the worker is gone its memory of the GPU is free again.
  ~Rig() {
    (void)connection_->Kill();
    (void)connection_->process().Wait(kPatience);
  }

  std::uint64_t Send(proto::WorkerOrder order) {
    order.set_sequence(++sequence_);
    TROUPE_CHECK(connection_->Send(order).ok(), "the ring is full");
    return sequence_;
  }
  proto::WorkerOutcome Await(std::uint64_t sequence) {
    while (!outcomes_.contains(sequence)) {
      proto::WorkerOutcome outcome = Receive();
      outcomes_[outcome.sequence()] = std::move(outcome);
    }
    return Good(std::move(outcomes_.extract(sequence).mapped()));
  }
  // Waits for the outcome of the order that ends next.
  proto::WorkerOutcome AwaitAny() {
    TROUPE_CHECK(outcomes_.empty(), "an outcome came that was not awaited");
    return Good(Receive());
  }
  proto::WorkerOutcome Ask(proto::WorkerOrder order) { return Await(Send(std::move(order))); }
  void Evict(const std::string& digest) {
    proto::WorkerOrder order;
    order.mutable_evict()->set_digest(digest);
    (void)Ask(std::move(order));
  }
  [[nodiscard]] const proto::WorkerDescription& description() const { return connection_->description(); }
  [[nodiscard]] WorkerConnection& connection() { return *connection_; }

 private:
  proto::WorkerOutcome Receive() {
    proto::WorkerOutcome outcome;
    while (!Value(connection_->Receive(outcome), "outcome")) {
      TROUPE_CHECK(connection_->reader().Wait(kPatience), "no outcome");
    }
    return outcome;
  }
  // The outputs are released at once.
  proto::WorkerOutcome Good(proto::WorkerOutcome outcome) {
    if (outcome.code() != 0) std::fprintf(stderr, "an order failed: %s\n", outcome.message().c_str());
    TROUPE_CHECK(outcome.code() == 0, "an order failed");
    proto::WorkerOrder release;
    for (const auto& output : outcome.run().outputs()) {
      if (output.data().has_arena()) *release.mutable_release()->add_slices() = output.data().arena();
    }
    if (release.has_release()) (void)Send(std::move(release));
    return outcome;
  }

  std::unique_ptr<WorkerConnection> connection_;
  std::map<std::uint64_t, proto::WorkerOutcome> outcomes_;
  std::uint64_t sequence_ = 0;
};

inline proto::WorkerOrder SwapInOf(const proto::HostCopy& copy) {
  proto::WorkerOrder order;
  *order.mutable_swap_in()->mutable_model() = copy;
  return order;
}
// The same swap, which has to end within `deadline`.
inline proto::WorkerOrder SwapInBy(const proto::HostCopy& copy, Duration deadline) {
  proto::WorkerOrder order = SwapInOf(copy);
  order.mutable_swap_in()->set_deadline_in_ns(deadline.count());
  return order;
}
inline proto::WorkerOrder PinOf(const std::string& digest) {
  proto::WorkerOrder order;
  order.mutable_pin()->set_digest(digest);
  return order;
}
inline proto::WorkerOrder UnpinOf(std::uint64_t pin) {
  proto::WorkerOrder order;
  order.mutable_unpin()->set_pin(pin);
  return order;
}
// The swap from the GPU that has pinned the model.
inline proto::WorkerOrder SwapInFrom(const proto::HostCopy& copy, std::uint32_t gpu,
                                     const proto::PinOutcome& pinned) {
  proto::WorkerOrder order = SwapInOf(copy);
  order.mutable_swap_in()->set_from_gpu(gpu);
  *order.mutable_swap_in()->mutable_pinned() = pinned.memory();
  return order;
}
inline double Took(const proto::WorkerOutcome& outcome) {
  return static_cast<double>(outcome.end_ns() - outcome.begin_ns()) * 1e-6;
}

// The weights that no step reads.
inline proto::Model NoOpModel(std::size_t weights) {
  proto::Model model;
  model.set_format_version(1);
  model.set_opset(13);
  for (auto* spec : {model.add_inputs(), model.add_outputs()}) {
    spec->set_type(proto::FP32);
    spec->add_shape(1);
    spec->add_shape(4);
  }
  model.mutable_inputs(0)->set_name("x");
  model.mutable_outputs(0)->set_name("y");
  auto* step = model.add_steps();
  step->set_op("Relu");
  step->add_inputs("x");
  step->add_outputs("y");
  model.set_weights_bytes(weights);
  return model;
}

}  // namespace troupe::gpu::bench
