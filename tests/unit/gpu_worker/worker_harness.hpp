// What a daemon has round one real worker process.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/check.hpp"
#include "gpu/worker/link_reader.hpp"
#include "gpu/worker/weight_record.hpp"
#include "gpu/worker/worker_client.hpp"
#include "gpu/worker/worker_process.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/gpu_worker/host_copies.hpp"
#include "transport/arena_client.hpp"
#include "transport/host_region.hpp"
#include "transport/local_channel.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {

inline constexpr Duration kPatience = std::chrono::seconds(60);

// Collects the outcomes of a link for a test that waits for them.
class Collector : public LinkHandler {
 public:
  void OnOutcome(proto::WorkerOutcome outcome) override {
    Change([&] { outcomes_[outcome.sequence()] = std::move(outcome); });
  }
  void OnDeath(const WorkerDeath& death) override {
    Change([&] { death_ = death; });
  }
  void OnCorrupt(const absl::Status& status) override {
    Change([&] { corrupt_ = status; });
  }
  proto::WorkerOutcome Await(std::uint64_t sequence) {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, kPatience, [&] { return outcomes_.contains(sequence) || death_; });
    TROUPE_CHECK(came, "an order was not answered");
    if (outcomes_.contains(sequence)) return outcomes_[sequence];
    proto::WorkerOutcome died;
    died.set_code(-1);
    died.set_message(death_->ToString());
    return died;
  }
  bool Answered(std::uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    return outcomes_.contains(sequence);
  }
  WorkerDeath AwaitDeath() {
    std::unique_lock lock(mutex_);
    TROUPE_CHECK(changed_.wait_for(lock, kPatience, [&] { return death_.has_value(); }),
                 "the worker did not die");
    return *death_;
  }
  absl::Status AwaitCorrupt() {
    std::unique_lock lock(mutex_);
    TROUPE_CHECK(changed_.wait_for(lock, kPatience, [&] { return corrupt_.has_value(); }),
                 "the link stayed well");
    return *corrupt_;
  }

 private:
  template <class Do>
  void Change(Do change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, proto::WorkerOutcome> outcomes_;
  std::optional<WorkerDeath> death_;
  std::optional<absl::Status> corrupt_;
};

// One daemon's link to the worker.
struct Link {
  std::shared_ptr<WorkerConnection> connection;
  std::shared_ptr<Collector> heard = std::make_shared<Collector>();
  LinkReader::Id id = 0;
  std::uint64_t next = 1;

  std::uint64_t Send(proto::WorkerOrder order) {
    order.set_sequence(next++);
    const absl::Status sent = connection->Send(order);
    TROUPE_CHECK(sent.ok(), "an order could not be sent");
    return order.sequence();
  }
  proto::WorkerOutcome Ask(proto::WorkerOrder order) { return heard->Await(Send(std::move(order))); }
};

class WorkerHarness {
 public:
  WorkerHarness() {
    const char* build = std::getenv("TROUPE_BUILD_DIR");
    command.program = std::string(build == nullptr ? "build/release" : build) + "/bin/troupe-gpu-worker";
    command.socket = directory / "worker";
    command.node = "n1";
    command.arena = MiB(8);
    command.allow_faults = true;
    transport::HostRegion::Options options;
    options.size = MiB(32);
    host = *transport::HostRegion::Create("host", options);
    memory = *CreateVirtualMemory(0, MiB(16));
    reader = *LinkReader::Start();
  }

  ~WorkerHarness() {
    for (const transport::ProcessHandle& worker : started_) (void)worker.Signal(SIGKILL);
  }

  void Start() {
    process = Value(StartWorker(command));
    started_.push_back(Value(transport::ProcessHandle::Open(process.pid())));
  }
  absl::StatusOr<std::unique_ptr<WorkerConnection>> TryAdopt(std::uint64_t epoch) {
    proto::AdoptHello hello;
    hello.set_node(command.node);
    hello.set_gpu(command.gpu);
    hello.set_daemon_epoch(epoch);
    hello.set_run_directory(directory.path());
    hello.set_weight_record(record.count());
    hello.set_group_bytes(learned.group_bytes());
    *hello.mutable_link_curve() = learned.link_curve();
    // The test has a handle of its own for each adoption; the harness keeps the one of the child process.
    transport::ProcessHandle handle;
    if (process.valid()) handle = std::move(process);
    AdoptionGifts gifts{host->fd(), memory.fd(), links.fd()};
    if (!command.device.starts_with("virtual:")) gifts = {host->fd()};
    return WorkerConnection::Adopt(command.socket, hello, gifts, std::move(handle), kPatience);
  }
  Link Adopt(std::uint64_t epoch) {
    Link link;
    link.connection = Value(TryAdopt(epoch));
    link.id = reader->Add(link.connection, link.heard);
    return link;
  }
  // From now on the memory has a record of the weights in it.
  void KeepWeights(Bytes device = MiB(16)) {
    record = WeightRecord::Size();
    memory = Value(CreateVirtualMemory(0, device + record));
  }
  // The worker of this link dies. On a busy machine that takes longer than a LinkReader waits for it.
  void KillAndWait(Link& link) {
    reader->Remove(link.id);
    TROUPE_CHECK(link.connection->Kill().ok(), "a worker can be killed");
    TROUPE_CHECK(link.connection->process().Wait(kPatience).ok(), "a killed worker ends");
  }
  Link StartAndAdopt() {
    Start();
    return Adopt(1);
  }
  template <class T>
  static T Value(absl::StatusOr<T> value) {
    if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    TROUPE_CHECK(value.ok(), "the harness needs this");
    return *std::move(value);
  }

  troupe::test::TemporaryDirectory directory;
  WorkerCommand command;
  std::unique_ptr<transport::HostRegion> host;
  transport::MemoryFile memory;
  Bytes record;                      // at its end
  proto::WorkerDescription learned;  // what the hello says of the link
  transport::LinkBuckets links = *CreateNodeLinks(1, {6e9});
  transport::ProcessHandle process;
  std::unique_ptr<LinkReader> reader;

 private:
  std::vector<transport::ProcessHandle> started_;
};

// A link that stops in the middle of the first copy over it: little more than `least` bytes pass, and the
// rest only after GoOn.
class HeldLink {
 public:
  HeldLink(const transport::LinkBuckets& links, const std::string& name, Bytes least)
      : links_(*transport::LinkBuckets::Open(transport::UniqueFd(dup(links.fd())))),
        link_(*links_.Find(name)),
        least_(links_.passed(link_) + least) {
    links_.StallBeyond(link_, least_);
  }
  void AwaitHeld() {
    const Time give_up = transport::SteadyNow() + kPatience;
    while (links_.passed(link_) <= least_) {
      TROUPE_CHECK(transport::SteadyNow() < give_up, "nothing passes the link");
      std::this_thread::yield();
    }
  }
  void GoOn() { links_.StallBeyond(link_, Bytes(0)); }

 private:
  transport::LinkBuckets links_;
  std::size_t link_;
  Bytes least_;
};

inline int CodeOf(absl::StatusCode code) {
  return static_cast<int>(code);
}

inline proto::WorkerOrder SwapInOf(const proto::HostCopy& copy) {
  proto::WorkerOrder order;
  *order.mutable_swap_in()->mutable_model() = copy;
  return order;
}
inline proto::WorkerOrder PrepareOf(const proto::HostCopy& copy, std::int64_t rows) {
  proto::WorkerOrder order;
  *order.mutable_prepare()->mutable_model() = copy;
  *order.mutable_prepare()->add_inputs() = Spec("x", {rows, kColumns});
  return order;
}
inline proto::WorkerOrder RunOf(const std::string& digest, std::int64_t rows) {
  proto::WorkerOrder order;
  order.mutable_run()->set_digest(digest);
  *order.mutable_run()->add_inputs() = SmallInput(rows);
  return order;
}
inline proto::WorkerOrder DescribeOf() {
  proto::WorkerOrder order;
  order.mutable_describe();
  return order;
}
inline proto::WorkerOrder EvictOf(const std::string& digest) {
  proto::WorkerOrder order;
  order.mutable_evict()->set_digest(digest);
  return order;
}
inline proto::WorkerOrder FaultOf(proto::FaultOrder::Kind kind) {
  proto::WorkerOrder order;
  order.mutable_fault()->set_kind(kind);
  return order;
}
inline proto::WorkerOrder ShutdownOf() {
  proto::WorkerOrder order;
  order.mutable_shutdown();
  return order;
}
inline std::vector<float> Floats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
inline std::vector<float> Floats(const std::string& bytes) {
  return Floats(std::as_bytes(std::span(bytes)));
}

}  // namespace troupe::gpu::test
