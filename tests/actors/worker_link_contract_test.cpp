// What an executor may expect of any WorkerLink: the fake under the actors' clock, and a real
// troupe-gpu-worker over rings.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/interfaces/message_types.hpp"
#include "actors/node/executor.hpp"
#include "actors/seams/fake_worker_link.hpp"
#include "actors/seams/process_worker_link.hpp"
#include "actors/seams/worker_link_state.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/gpu_worker/host_copies.hpp"
#include "transport/liveness.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::actors {
namespace {

constexpr Bytes kMemory = MiB(16);
constexpr Duration kPatience = std::chrono::seconds(60);

// What one link has reported.
class Heard {
 public:
  WorkerLink::Events Events() {
    return {[this](auto message) { Add(listening, std::move(message)); },
            [this](auto message) { Add(ready, std::move(message)); },
            [this](auto message) { Add(answers, std::move(message)); },
            [this](auto message) { Add(deaths, std::move(message)); }};
  }
  template <class Value>
  Value Read(const std::function<Value()>& read) {
    const std::lock_guard lock(mutex);
    return read();
  }
  const proto::WorkerOutcome* Outcome(std::uint64_t sequence) const {
    for (const auto& answer : answers)
      if (answer.outcome().sequence() == sequence) return &answer.outcome();
    return nullptr;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<proto::WorkerListening> listening;
  std::vector<proto::WorkerReady> ready;
  std::vector<proto::WorkerAnswer> answers;
  std::vector<proto::WorkerDied> deaths;

 private:
  template <class Messages, class Message>
  void Add(Messages& messages, Message message) {
    const std::lock_guard lock(mutex);
    messages.push_back(std::move(message));
    changed.notify_all();
  }
};

// One GPU, and the means to make links to its worker.
class Site {
 public:
  virtual ~Site() = default;
  virtual std::unique_ptr<WorkerLink> MakeLink() = 0;
  // Waits until `condition` holds (called under the lock of `heard`); false when it never does.
  virtual bool Await(Heard& heard, const std::function<bool()>& condition) = 0;
  virtual proto::HostCopy Model(const std::string& digest, std::size_t weights) = 0;
  // From now on the worker takes nothing out of its ring, and no adoption is answered.
  virtual void Freeze(std::uint64_t pid) = 0;
  virtual void Thaw(std::uint64_t pid) = 0;
  // Workers that start from now on end at once, with the code of a device that is not there.
  virtual void LoseDevice() = 0;
  // The worker is killed, and not by its link.
  virtual void KillFromOutside(std::uint64_t pid) = 0;
  // Links that are made from now on give the next worker of the GPU nothing of what the last one had on it.
  virtual void KeepNothing() = 0;
  // Leaves the files of a worker that was killed together with its daemon.
  virtual void LeaveStaleSocket() = 0;
};

class Fake final : public Site {
 public:
  Fake() : config_(Configure()), system_(*config_) {}
  ~Fake() override {
    Settle();
    scheduler().clock().cancel_all();
  }
  std::unique_ptr<WorkerLink> MakeLink() override {
    FakeWorkerProfile profile;
    profile.memory = kMemory;
    profile.ring = 100;
    profile.keeps = keeps_;
    return MakeFakeWorkerLink(system_, profile, control_);
  }
  bool Await(Heard&, const std::function<bool()>& condition) override {
    Settle();
    const auto end = scheduler().clock().now() + kPatience;
    while (!condition()) {
      const auto& schedule = scheduler().clock().schedule();
      if (schedule.empty() || schedule.begin()->first > end) return false;
      const auto due = schedule.begin()->first - scheduler().clock().now();
      scheduler().advance_time(std::max(due, caf::timespan(0)));
      Settle();
    }
    return true;
  }
  proto::HostCopy Model(const std::string& digest, std::size_t weights) override {
    proto::HostCopy copy;
    copy.set_digest(digest);
    copy.mutable_weights()->set_length(weights);
    return copy;
  }
  void Freeze(std::uint64_t) override { control_->hang = true; }
  void Thaw(std::uint64_t) override { control_->hang = false; }
  void LoseDevice() override { control_->unfit = true; }
  void KillFromOutside(std::uint64_t) override { control_->kill(); }
  void KeepNothing() override { keeps_ = false; }
  void LeaveStaleSocket() override {}

 private:
  static std::unique_ptr<caf::actor_system_config> Configure() {
    auto config = std::make_unique<caf::actor_system_config>();
    RegisterMessageTypes(*config);
    config->set("scheduler.policy", caf::atom("testing"));
    return config;
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }
  void Settle() {
    while (scheduler().try_run_once()) {
    }
  }

  std::unique_ptr<caf::actor_system_config> config_;
  caf::actor_system system_;
  bool keeps_ = true;
  std::shared_ptr<FakeWorkerControl> control_ = std::make_shared<FakeWorkerControl>();
};

class Process final : public Site {
 public:
  Process() {
    const char* build = std::getenv("TROUPE_BUILD_DIR");
    auto& command = options_.command;
    command.program = std::string(build == nullptr ? "build/release" : build) + "/bin/troupe-gpu-worker";
    command.device = "virtual:0";
    command.socket = directory_ / "worker-0.sock";
    command.node = "n1";
    command.arena = MiB(8);
    command.allow_faults = true;
    options_.memory = kMemory;
    transport::HostRegion::Options region;
    region.size = MiB(64);
    host_ = *transport::HostRegion::Create("host", region);
    reader_ = *gpu::LinkReader::Start();
  }
  // A worker that is still alive listens here.
  ~Process() override {
    const auto left = transport::ConnectUnix(options_.command.socket, Duration::zero());
    if (left.ok()) kill(left->peer_pid(), SIGKILL);
  }
  std::unique_ptr<WorkerLink> MakeLink() override {
    // As when a daemon starts again: the newest link gets the worker.
    return MakeProcessWorkerLink({reader_,
                                  pool_,
                                  [this](const std::string&) { return host_; },
                                  links_.fd(),
                                  directory_.path(),
                                  ++epoch_,
                                  {},
                                  {},
                                  {}},
                                 options_);
  }
  bool Await(Heard& heard, const std::function<bool()>& condition) override {
    std::unique_lock lock(heard.mutex);
    return heard.changed.wait_for(lock, kPatience, condition);
  }
  proto::HostCopy Model(const std::string& digest, std::size_t weights) override {
    return gpu::test::PlaceSmall(*host_, digest, 1, weights);
  }
  void Freeze(std::uint64_t pid) override {
    kill(static_cast<pid_t>(pid), SIGSTOP);
    options_.adopt_timeout = std::chrono::milliseconds(100);
  }
  void Thaw(std::uint64_t pid) override { kill(static_cast<pid_t>(pid), SIGCONT); }
  void LoseDevice() override { options_.command.device = "toaster:7"; }
  void KillFromOutside(std::uint64_t pid) override { kill(static_cast<pid_t>(pid), SIGKILL); }
  void KeepNothing() override { options_.keep_weights = false; }
  // Each engine is watched by itself; the worker's main loop may stand still for longer.
  void HangAfter(Duration limit) { options_.watch.heartbeat = kPatience, options_.watch.engines = limit; }
  void LeaveStaleSocket() override {
    auto listener = transport::UnixListener::Listen(options_.command.socket);
    ASSERT_TRUE(listener.ok()) << listener.status();
    // The socket's file stays when its listener does not end in good order.
    std::filesystem::rename(options_.command.socket, directory_ / "kept");
    *listener = transport::UnixListener();
    std::filesystem::rename(directory_ / "kept", options_.command.socket);
  }

 private:
  test::TemporaryDirectory directory_;
  ProcessWorkerOptions options_;
  std::shared_ptr<transport::HostRegion> host_;
  transport::LinkBuckets links_ = *gpu::CreateNodeLinks(1, {6e9});
  std::shared_ptr<gpu::LinkReader> reader_;
  WorkPool pool_{4};
  std::uint64_t epoch_ = 0;
};

// A link and what it reported. The link is destroyed first, as an executor does it.
struct Worker {
  explicit Worker(Site& s) : site(s), link(s.MakeLink()) { link->Bind(heard.Events()); }

  bool Await(const std::function<bool()>& condition) { return site.Await(heard, condition); }
  bool AwaitDeaths(std::size_t count) {
    return Await([&] { return heard.deaths.size() >= count; });
  }
  // Adopts the worker once the link reports that it listens, as an executor does it.
  proto::WorkerReady Start(std::uint64_t incarnation) {
    link->Spawn(incarnation);
    const bool listens = Await(
        [&] { return !heard.listening.empty() && heard.listening.back().incarnation() == incarnation; });
    EXPECT_TRUE(listens);
    return Adopt(incarnation);
  }
  proto::WorkerReady Adopt(std::uint64_t incarnation) {
    const auto before = heard.Read<std::size_t>([&] { return heard.ready.size(); });
    link->Adopt(incarnation);
    EXPECT_TRUE(Await([&] { return heard.ready.size() > before; }));
    return heard.Read<proto::WorkerReady>([&] { return heard.ready.back(); });
  }
  absl::Status Send(proto::WorkerOrder order, std::uint64_t sequence) {
    order.set_sequence(sequence);
    return link->Send(order);
  }
  // Sends the order and waits for its outcome.
  proto::WorkerOutcome Ask(proto::WorkerOrder order) {
    const auto sequence = next++;
    const auto sent = Send(std::move(order), sequence);
    EXPECT_TRUE(sent.ok()) << sent;
    EXPECT_TRUE(Await([&] { return heard.Outcome(sequence) != nullptr; })) << "the order was not answered";
    return heard.Read<proto::WorkerOutcome>([&] {
      const auto* outcome = heard.Outcome(sequence);
      return outcome == nullptr ? proto::WorkerOutcome() : *outcome;
    });
  }
  proto::WorkerDied Death() {
    return heard.Read<proto::WorkerDied>([&] { return heard.deaths.back(); });
  }

  Site& site;
  Heard heard;
  std::unique_ptr<WorkerLink> link;
  std::uint64_t next = 1000;
};

proto::WorkerOrder DescribeOrder() {
  proto::WorkerOrder order;
  order.mutable_describe();
  return order;
}
proto::WorkerOrder SwapIn(const proto::HostCopy& copy) {
  proto::WorkerOrder order;
  *order.mutable_swap_in()->mutable_model() = copy;
  return order;
}
proto::WorkerOrder Evict(const std::string& digest) {
  proto::WorkerOrder order;
  order.mutable_evict()->set_digest(digest);
  return order;
}

bool Code(const proto::WorkerOutcome& outcome, absl::StatusCode code) {
  return outcome.code() == static_cast<int>(code);
}

class WorkerLinkContract : public ::testing::TestWithParam<bool> {
 protected:
  WorkerLinkContract() {
    if (GetParam()) {
      site_ = std::make_unique<Process>();
    } else {
      site_ = std::make_unique<Fake>();
    }
  }
  Site& site() { return *site_; }

 private:
  std::unique_ptr<Site> site_;
};

TEST_P(WorkerLinkContract, ABornWorkerListensIsAdoptedAndAnswers) {
  Worker worker(site());
  EXPECT_FALSE(worker.link->Listens());
  EXPECT_TRUE(absl::IsUnavailable(worker.Send(DescribeOrder(), 1))) << "there is no worker yet";
  EXPECT_FALSE(worker.link->Progress().busy);
  const auto ready = worker.Start(1);
  EXPECT_EQ(ready.code(), 0) << ready.message();
  EXPECT_EQ(ready.incarnation(), 1u);
  EXPECT_FALSE(ready.same_worker());
  EXPECT_EQ(Bytes(ready.description().memory_bytes()), kMemory);
  EXPECT_TRUE(worker.link->Listens());
  const auto before = worker.link->Progress();
  const auto outcome = worker.Ask(DescribeOrder());
  EXPECT_EQ(outcome.code(), 0) << outcome.message();
  EXPECT_EQ(Bytes(outcome.description().memory_bytes()), kMemory);
  EXPECT_EQ(worker.heard.answers.back().incarnation(), 1u);
  EXPECT_NE(worker.link->Progress().counter, before.counter);
  EXPECT_FALSE(worker.link->Progress().busy) << "every order is answered";
  EXPECT_TRUE(worker.heard.deaths.empty());
}

TEST_P(WorkerLinkContract, ModelsComeAndGoAndWhatDoesNotFitSaysSo) {
  Worker worker(site());
  ASSERT_EQ(worker.Start(1).code(), 0);
  const auto small = site().Model("small", 1000);
  EXPECT_EQ(worker.Ask(SwapIn(small)).code(), 0);
  EXPECT_EQ(worker.Ask(SwapIn(small)).code(), 0) << "the model is there already";
  const auto huge = worker.Ask(SwapIn(site().Model("huge", 20 << 20)));
  EXPECT_TRUE(Code(huge, absl::StatusCode::kResourceExhausted)) << huge.message();
  ASSERT_TRUE(huge.has_no_fit());
  EXPECT_LE(huge.no_fit().largest(), huge.no_fit().free());
  EXPECT_LT(Bytes(huge.no_fit().free()), kMemory);
  const auto described = worker.Ask(DescribeOrder());
  ASSERT_EQ(described.description().resident_size(), 1);
  EXPECT_EQ(described.description().resident(0).digest(), "small");
  EXPECT_EQ(worker.Ask(Evict("small")).code(), 0);
  EXPECT_TRUE(Code(worker.Ask(Evict("small")), absl::StatusCode::kNotFound));
  proto::WorkerOrder run;
  run.mutable_run()->set_digest("small");
  EXPECT_TRUE(Code(worker.Ask(run), absl::StatusCode::kNotFound));
  // Neither of the two orders is answered; the one that follows them is.
  proto::WorkerOrder cancel;
  cancel.mutable_cancel()->set_target(77);
  EXPECT_TRUE(worker.Send(cancel, 1).ok());
  proto::WorkerOrder release;
  release.mutable_release();
  EXPECT_TRUE(worker.Send(release, 2).ok());
  EXPECT_EQ(worker.Ask(DescribeOrder()).description().resident_size(), 0);
  EXPECT_EQ(worker.heard.Outcome(1), nullptr);
  EXPECT_EQ(worker.heard.Outcome(2), nullptr);
  EXPECT_FALSE(worker.link->Progress().busy);
}

TEST_P(WorkerLinkContract, WhatAKilledWorkerHadIsThereForTheNextOneOnce) {
  Worker worker(site());
  ASSERT_EQ(worker.Start(1).code(), 0);
  const auto copy = site().Model("m", 1000);
  ASSERT_EQ(worker.Ask(SwapIn(copy)).bytes(), 1000u);
  ASSERT_EQ(worker.Ask(SwapIn(site().Model("goes", 1000))).code(), 0);
  ASSERT_EQ(worker.Ask(Evict("goes")).code(), 0);
  for (std::uint64_t life = 2; life < 4; ++life) {
    worker.link->Kill();
    ASSERT_TRUE(worker.AwaitDeaths(life - 1));
    const auto ready = worker.Start(life);
    ASSERT_EQ(ready.code(), 0) << ready.message();
    ASSERT_EQ(ready.description().resident_size(), 1);
    EXPECT_EQ(ready.description().resident(0).digest(), "m");
    EXPECT_EQ(ready.description().kept().models(), 1u);
    EXPECT_LT(ready.description().free_bytes(), ready.description().memory_bytes());
  }
  const auto swapped = worker.Ask(SwapIn(copy));
  EXPECT_EQ(swapped.code(), 0) << swapped.message();
  EXPECT_EQ(swapped.bytes(), 0u);
  EXPECT_EQ(worker.Ask(Evict("m")).code(), 0);
  worker.link->Kill();
  ASSERT_TRUE(worker.AwaitDeaths(3));
  EXPECT_EQ(worker.Start(4).description().resident_size(), 0) << "it was evicted";
}

TEST_P(WorkerLinkContract, AKilledWorkerIsToldOfOnceAndWithoutAKeeperTheNextOneStartsEmpty) {
  site().KeepNothing();
  Worker worker(site());
  ASSERT_EQ(worker.Start(1).code(), 0);
  ASSERT_EQ(worker.Ask(SwapIn(site().Model("m", 1000))).code(), 0);
  worker.link->Kill();
  ASSERT_TRUE(worker.AwaitDeaths(1));
  EXPECT_EQ(worker.Death().incarnation(), 1u);
  EXPECT_EQ(worker.Death().signal(), SIGKILL);
  EXPECT_EQ(worker.Death().exit_code(), 0);
  EXPECT_TRUE(absl::IsUnavailable(worker.Send(DescribeOrder(), 5)));
  worker.link->Kill();  // the worker is gone, and the link does not report it a second time
  const auto ready = worker.Start(2);
  ASSERT_EQ(ready.code(), 0) << ready.message();
  EXPECT_EQ(ready.incarnation(), 2u);
  EXPECT_EQ(ready.description().resident_size(), 0);
  EXPECT_EQ(worker.Ask(DescribeOrder()).code(), 0);
  EXPECT_EQ(worker.heard.deaths.size(), 1u);
  EXPECT_EQ(worker.heard.answers.back().incarnation(), 2u);
}

TEST_P(WorkerLinkContract, AWorkerThatAnotherProcessKillsIsReportedToo) {
  Worker worker(site());
  const auto ready = worker.Start(1);
  ASSERT_EQ(ready.code(), 0);
  site().KillFromOutside(ready.description().pid());
  ASSERT_TRUE(worker.AwaitDeaths(1));
  EXPECT_EQ(worker.Death().signal(), SIGKILL);
  worker.link->Kill();
  EXPECT_EQ(worker.Start(2).code(), 0);
  EXPECT_EQ(worker.heard.deaths.size(), 1u);
}

TEST_P(WorkerLinkContract, AWorkerThatIsAskedToEndsInGoodOrder) {
  Worker worker(site());
  ASSERT_EQ(worker.Start(1).code(), 0);
  worker.link->ShutDown();
  ASSERT_TRUE(worker.AwaitDeaths(1));
  EXPECT_EQ(worker.Death().signal(), 0);
  EXPECT_EQ(worker.Death().exit_code(), 0);
  EXPECT_FALSE(worker.link->Listens());
}

TEST_P(WorkerLinkContract, AWorkerThatWasNotAdoptedYetCanBeKilled) {
  Worker worker(site());
  worker.link->Spawn(1);
  ASSERT_TRUE(worker.Await([&] { return !worker.heard.listening.empty(); }));
  worker.link->Kill();
  ASSERT_TRUE(worker.AwaitDeaths(1));
  EXPECT_EQ(worker.Death().signal(), SIGKILL);
  EXPECT_EQ(worker.Start(2).code(), 0);
}

TEST_P(WorkerLinkContract, ADeviceThatIsNotThereIsTheExitCodeOfTheWorker) {
  site().LoseDevice();
  Worker worker(site());
  worker.link->Spawn(1);
  ASSERT_TRUE(worker.Await([&] { return !worker.heard.listening.empty() || !worker.heard.deaths.empty(); }));
  // The daemon that started the worker may learn of its end only when it adopts it.
  if (worker.heard.Read<bool>([&] { return worker.heard.deaths.empty(); })) worker.link->Adopt(1);
  ASSERT_TRUE(worker.AwaitDeaths(1));
  EXPECT_EQ(worker.Death().exit_code(), 4);
  EXPECT_EQ(worker.Death().signal(), 0);
  EXPECT_TRUE(worker.heard.ready.empty());
}

TEST_P(WorkerLinkContract, WithoutAListenerAnAdoptionFailsAndAKillLeadsOn) {
  site().LeaveStaleSocket();
  Worker worker(site());
  EXPECT_FALSE(worker.link->Listens());
  EXPECT_NE(worker.Adopt(1).code(), 0);
  worker.link->Kill();
  ASSERT_TRUE(worker.AwaitDeaths(1)) << "the executor waits for the report of the worker's end";
  EXPECT_EQ(worker.Death().incarnation(), 1u);
  EXPECT_EQ(worker.Start(2).code(), 0) << "the socket that lies in the way has no owner";
}

TEST_P(WorkerLinkContract, AWorkerLivesOnWhenItsLinkLetsGo) {
  {
    Worker first(site());
    ASSERT_EQ(first.Start(1).code(), 0);
    ASSERT_EQ(first.Ask(SwapIn(site().Model("kept", 1000))).code(), 0);
  }
  Worker second(site());
  EXPECT_TRUE(second.link->Listens());
  const auto ready = second.Adopt(1);
  ASSERT_EQ(ready.code(), 0) << ready.message();
  EXPECT_TRUE(ready.same_worker());
  ASSERT_EQ(ready.description().resident_size(), 1);
  EXPECT_EQ(ready.description().resident(0).digest(), "kept");
  EXPECT_EQ(second.Ask(DescribeOrder()).code(), 0);
  second.link->Kill();
  ASSERT_TRUE(second.AwaitDeaths(1));
  EXPECT_EQ(second.Start(2).code(), 0);
}

TEST_P(WorkerLinkContract, AWorkerWithoutARuntimeKeyIsAssignedInPlaceAndStaysAssigned) {
  std::uint64_t pid = 0;
  {
    Worker worker(site());
    const auto warm = worker.Start(1);
    ASSERT_EQ(warm.code(), 0);
    EXPECT_EQ(warm.description().isolation_key(), "");
    pid = warm.description().pid();
    worker.link->Serve("tenant/acme");
    const auto assigned = worker.Adopt(2);
    ASSERT_EQ(assigned.code(), 0) << assigned.message();
    EXPECT_EQ(assigned.incarnation(), 2u);
    EXPECT_EQ(assigned.description().isolation_key(), "tenant/acme");
    EXPECT_EQ(assigned.description().pid(), pid) << "another worker was started";
    ASSERT_EQ(worker.Ask(SwapIn(site().Model("kept", 1000))).code(), 0);
    EXPECT_TRUE(worker.heard.deaths.empty());
  }
  // A daemon that comes back knows nothing of the worker: the worker says which runtime it serves, and is
  // adopted as that.
  Worker second(site());
  const auto again = second.Adopt(1);
  ASSERT_EQ(again.code(), 0) << again.message();
  EXPECT_EQ(again.description().isolation_key(), "tenant/acme");
  EXPECT_EQ(again.description().pid(), pid);
  EXPECT_EQ(again.description().resident_size(), 1);
  second.link->Kill();
  ASSERT_TRUE(second.AwaitDeaths(1));
  const auto fresh = second.Start(2);
  ASSERT_EQ(fresh.code(), 0) << fresh.message();
  EXPECT_EQ(fresh.description().isolation_key(), "");
  second.link->Kill();
  ASSERT_TRUE(second.AwaitDeaths(2));
  second.link->Serve("tenant/bolt");
  const auto served = second.Start(3);
  ASSERT_EQ(served.code(), 0) << served.message();
  EXPECT_EQ(served.description().isolation_key(), "tenant/bolt")
      << "the worker did not serve its tenant from its start on";
}

TEST_P(WorkerLinkContract, AStuckWorkerFromBeforeIsKilledAndReplaced) {
  std::uint64_t pid = 0;
  {
    Worker first(site());
    const auto ready = first.Start(1);
    ASSERT_EQ(ready.code(), 0);
    pid = ready.description().pid();
  }
  site().Freeze(pid);
  Worker second(site());
  EXPECT_TRUE(second.link->Listens());
  EXPECT_NE(second.Adopt(1).code(), 0);
  second.link->Kill();
  ASSERT_TRUE(second.AwaitDeaths(1));
  EXPECT_EQ(second.Death().signal(), SIGKILL);
  site().Thaw(pid);
  EXPECT_FALSE(second.link->Listens()) << "the worker is gone, not only reported as gone";
}

TEST_P(WorkerLinkContract, AFullRingIsSaidAndNothingOfItIsLost) {
  Worker worker(site());
  const auto ready = worker.Start(1);
  ASSERT_EQ(ready.code(), 0);
  // The fake takes no order while its actors do not run.
  if (GetParam()) site().Freeze(ready.description().pid());
  absl::Status status;
  std::uint64_t sent = 0;
  while ((status = worker.Send(DescribeOrder(), sent + 1)).ok() && sent < 1'000'000) ++sent;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(worker.link->Progress().busy);
  if (GetParam()) site().Thaw(ready.description().pid());
  EXPECT_TRUE(worker.Await([&] { return worker.heard.answers.size() == sent; }));
  EXPECT_FALSE(worker.link->Progress().busy);
  EXPECT_EQ(worker.Ask(DescribeOrder()).code(), 0) << "there is room in the ring again";
}

TEST_P(WorkerLinkContract, ALinkThatIsGoneSaysNothingMore) {
  Heard heard;
  {
    auto link = site().MakeLink();
    link->Bind(heard.Events());
    link->Spawn(1);
    ASSERT_TRUE(site().Await(heard, [&] { return !heard.listening.empty(); }));
    link->Adopt(1);
    ASSERT_TRUE(site().Await(heard, [&] { return !heard.ready.empty(); }));
    for (std::uint64_t i = 1; i <= 20; ++i) {
      auto order = DescribeOrder();
      order.set_sequence(i);
      ASSERT_TRUE(link->Send(order).ok());
    }
  }
  const auto said = heard.Read<std::size_t>([&] { return heard.answers.size() + heard.deaths.size(); });
  Worker next(site());
  ASSERT_EQ(next.Adopt(1).code(), 0);
  EXPECT_EQ(next.Ask(DescribeOrder()).code(), 0);
  EXPECT_EQ(heard.Read<std::size_t>([&] { return heard.answers.size() + heard.deaths.size(); }), said);
}

TEST_P(WorkerLinkContract, AWorkerThatWasNeverAdoptedEndsWithItsLink) {
  {
    Worker worker(site());
    worker.link->Spawn(1);
    ASSERT_TRUE(worker.Await([&] { return !worker.heard.listening.empty(); }));
  }
  Worker next(site());
  ASSERT_EQ(next.Start(1).code(), 0) << "the old worker still has the socket";
}

// The runs that wait behind the stuck one move on as they end, and the rest of the worker goes on: only the
// watch over each engine by itself sees that the run is stuck.
// What lies in the memory may be what keeps them from coming up.
TEST(KeptMemory, AfterTwoWorkersThatDidNotComeUpTheNextOneBeginsWithNewMemory) {
  ProcessWorkerOptions options;
  options.memory = MiB(1);
  options.keep_weights = true;
  KeptMemory memory;
  const auto given = [&](bool begins) {
    EXPECT_TRUE(memory.Ready(options, "", begins).ok());
    struct stat found {};
    EXPECT_EQ(fstat(memory.file.get(), &found), 0);
    return found.st_ino;
  };
  const auto up = [&] {
    proto::WorkerDescription worker;
    worker.set_weight_record(memory.record.count());
    memory.Learn(worker, transport::UniqueFd(dup(memory.file.get())));
  };
  const auto first = given(true);
  up();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(given(true), first);
    up();
  }
  EXPECT_EQ(given(true), first);
  EXPECT_EQ(given(false), first);
  EXPECT_EQ(given(true), first);
  const auto second = given(true);
  EXPECT_NE(second, first);
  EXPECT_EQ(given(true), second);
}

TEST(ProcessExecutor, ACopyThatStandsStillIsNamedAndCostsTheWorker) {
  caf::actor_system_config config;
  RegisterMessageTypes(config);
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  Process site;
  site.HangAfter(std::chrono::milliseconds(500));
  ExecutorLimits limits;
  limits.watch_every = std::chrono::milliseconds(50);
  limits.supervision.hang_timeout = std::chrono::hours(1);
  const auto executor = SpawnExecutor(system, 0, "GPU 0", site.MakeLink(),
                                      caf::actor_cast<ExecutorListener>(caf::actor(self)), limits);
  const auto await = [&](proto::ExecutorReport::State state) {
    proto::ExecutorReport last;
    bool in_time = true;
    while (in_time && last.state() != state) {
      self->receive([&](proto::ExecutorReport& report) { last = std::move(report); },
                    caf::after(kPatience) >> [&] { in_time = false; });
    }
    EXPECT_TRUE(in_time) << "the report does not come";
    return last;
  };
  std::uint64_t sequence = 0;
  const auto ask = [&](proto::WorkerOrder order) {
    order.set_sequence(++sequence);
    return self->request(executor, caf::timespan(kPatience), std::move(order));
  };
  const auto answer = [](auto handle) {
    proto::WorkerOutcome outcome;
    handle.receive([&](proto::WorkerOutcome& came) { outcome = std::move(came); },
                   [](const caf::error&) { ADD_FAILURE() << "the order was not answered"; });
    return outcome;
  };
  await(proto::ExecutorReport::READY);
  const auto copy = site.Model("m", 1 << 20);
  proto::WorkerOrder fault;
  fault.mutable_fault()->set_kind(proto::FaultOrder::STALL_LINK);
  EXPECT_EQ(answer(ask(std::move(fault))).code(), 0);
  auto swap = ask(SwapIn(copy));
  proto::WorkerOrder order;
  order.mutable_run()->set_digest("m");
  *order.mutable_run()->mutable_model() = copy;
  *order.mutable_run()->add_inputs() = gpu::test::SmallInput(1);
  auto run = ask(std::move(order));
  const std::string why = "copy in stands still at order 2";
  EXPECT_NE(await(proto::ExecutorReport::DOWN).reason().find(why), std::string::npos);
  const auto swapped = answer(std::move(swap));
  EXPECT_TRUE(Code(swapped, absl::StatusCode::kUnavailable));
  EXPECT_NE(swapped.message().find(why), std::string::npos) << swapped.message();
  EXPECT_TRUE(Code(answer(std::move(run)), absl::StatusCode::kUnavailable));
  await(proto::ExecutorReport::READY);
  EXPECT_EQ(answer(ask(SwapIn(copy))).code(), 0) << "the next worker does not copy again";
  self->send_exit(executor, caf::exit_reason::kill);
  self->wait_for(executor);
}

INSTANTIATE_TEST_SUITE_P(Forms, WorkerLinkContract, ::testing::Bool(),
                         [](const auto& form) { return form.param ? "Process" : "Fake"; });

}  // namespace
}  // namespace troupe::actors
