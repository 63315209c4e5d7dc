// How transfers share a link: its use, the shares of two at a time, the delay of a transfer that comes late.
//
// usage: swap_links_bench ROUNDS LINK...      LINK in GB/s
//
// Prints "name value [baseline]" lines: see bench/swap.py for what they mean.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "bench/worker_rig.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::bench {
namespace {

constexpr std::uint64_t kLarge = 240 << 20;  // a ResNet-152
constexpr std::uint64_t kSmall = 100 << 20;  // a ResNet-50
// The sizes are large enough that a thread that wakes late still meets the other one.
constexpr std::uint64_t kPair = 224 << 20;

// The deadlines of the requests whose models share a link.
constexpr Duration kSoon = std::chrono::milliseconds(50);
constexpr Duration kLater = std::chrono::seconds(1);

class Links {
 public:
  Links() : site_(Bytes(kLarge) + MiB(16), MiB(512)) {
    TouchMemory(site_.other_memory());
    const std::vector<std::byte> zeros(kLarge, std::byte{1});
    const proto::RegionRange all = site_.Place(zeros);
    const auto model = [&](const std::string& digest, std::uint64_t size) {
      proto::RegionRange range = all;
      range.set_length(size);
      return site_.PlaceModel(digest, NoOpModel(size), range);
    };
    large_ = model("large", kLarge);
    small_ = model("small", kSmall);
    for (const char* name : {"one", "two", "three"}) pair_.push_back(model(name, kPair));
  }

  void Use(double link, int rounds) {
    transport::LinkBuckets links = Value(CreateNodeLinks(1, {link * 1e9}), "links");
    WorkerCommand whole;
    whole.swap = "whole";
    whole.block = GiB(1);
    Rig plain(site_, whole, links, site_.memory());
    Rig grouped(site_, WorkerCommand(), links, site_.memory());
    Say(absl::StrCat("group_mib/", link),
        static_cast<double>(grouped.description().group_bytes()) / (1 << 20));
    for (int round = 0; round <= rounds; ++round) {
      const double copy = Bandwidth(plain.Ask(SwapInOf(large_)));
      plain.Evict("large");
      const double swap = Bandwidth(grouped.Ask(SwapInOf(large_)));
      grouped.Evict("large");
      if (round > 0) Say(absl::StrCat("link_use/", link), swap, copy);
    }
  }

  // Two swaps of one worker: the share of the first to end, up to its end.
  void Share(double link, int rounds) {
    transport::LinkBuckets links = Value(CreateNodeLinks(1, {link * 1e9}), "links");
    Rig rig(site_, WorkerCommand(), links, site_.memory());
    for (int round = 0; round <= rounds; ++round) {
      std::vector<std::uint64_t> orders;
      for (int i = 0; i < 2; ++i) orders.push_back(rig.Send(SwapInOf(pair_[static_cast<std::size_t>(i)])));
      std::vector<proto::WorkerOutcome> swapped;
      for (const std::uint64_t order : orders) swapped.push_back(rig.Await(order));
      rig.Evict("one");
      rig.Evict("two");
      if (round > 0)
        Say(absl::StrCat("fair_share/", link, "/one-worker"), ShareOfFirst({swapped[0]}, {swapped[1]}));
    }
  }

  // Two workers behind one switch: one with one swap, the other with `others` swaps.
  void ShareSwitch(double link, int others, int rounds) {
    const BytesPerSecond half{link * 1e9};
    auto links =
        Value(transport::LinkBuckets::Create({{"switch:in", half},
                                              {"switch:out", half},
                                              {LinkInName(0), {2 * half.value}, kBurst, "switch:in"},
                                              {LinkOutName(0), {2 * half.value}, kBurst, "switch:out"},
                                              {LinkInName(1), {2 * half.value}, kBurst, "switch:in"},
                                              {LinkOutName(1), {2 * half.value}, kBurst, "switch:out"}}),
              "links");
    WorkerCommand command;
    command.link_sharing = "shared";
    Rig mine(site_, command, links, site_.memory());
    command.gpu = 1;
    Rig other(site_, command, links, site_.other_memory());
    for (int round = 0; round <= rounds; ++round) {
      const std::uint64_t one = mine.Send(SwapInOf(pair_[0]));
      std::vector<std::uint64_t> rest;
      for (int i = 0; i < others; ++i)
        rest.push_back(other.Send(SwapInOf(pair_[static_cast<std::size_t>(i)])));
      const proto::WorkerOutcome swapped = mine.Await(one);
      std::vector<proto::WorkerOutcome> beside;
      for (const std::uint64_t order : rest) beside.push_back(other.Await(order));
      mine.Evict("one");
      for (int i = 0; i < others; ++i) other.Evict(pair_[static_cast<std::size_t>(i)].digest());
      if (round == 0) continue;
      Say(absl::StrCat("fair_share/", link, "/switch-1-to-", others), ShareOfFirst({swapped}, beside));
    }
  }

  // A model that comes from another GPU, pinned and released, beside one from the host: the two links have
  // the same speed.
  void FromPeer(double link, int rounds) {
    transport::LinkBuckets links =
        Value(CreateNodeLinks(2, {link * 1e9}, {}, {{0, 1, {link * 1e9}}}), "links");
    Rig source(site_, WorkerCommand(), links, site_.memory());
    WorkerCommand command;
    command.gpu = 1;
    Rig rig(site_, command, links, site_.other_memory());
    (void)source.Ask(SwapInOf(large_));
    for (int round = 0; round <= rounds; ++round) {
      const proto::WorkerOutcome host = rig.Ask(SwapInOf(large_));
      rig.Evict("large");
      const Time begin = transport::SteadyNow();
      const proto::PinOutcome pinned = source.Ask(PinOf("large")).pin();
      const proto::WorkerOutcome peer = rig.Ask(SwapInFrom(large_, 0, pinned));
      rig.Evict("large");
      (void)source.Send(UnpinOf(pinned.pin()));
      if (round == 0) continue;
      Say(absl::StrCat("swap_from_peer/", link), Bandwidth(peer), Bandwidth(host));
      Say(absl::StrCat("peer_first_group_ms/", link),
          static_cast<double>(peer.swap_in().group_ns(0) - begin.time_since_epoch().count()) * 1e-6,
          static_cast<double>(host.swap_in().group_ns(0) - host.begin_ns()) * 1e-6);
    }
  }

  // The deadlines of the two requests: the one that waits for the large model, and the one that arrives late. Without a
  // value the request has no deadline.
  struct Objectives {
    std::optional<Duration> large = kLater;
    std::optional<Duration> late = kSoon;
  };
  // A transfer that arrives while a large one passes: how much later it ends than alone.
  void LateArrival(double link, const std::string& name, const WorkerCommand& command, int rounds) {
    LateArrival(link, name, command, rounds, Objectives());
  }
  void LateArrival(double link, const std::string& name, const WorkerCommand& command, int rounds,
                   const Objectives& due, Duration copy_time = {}) {
    const auto order = [](const proto::HostCopy& copy, std::optional<Duration> by) {
      return by ? SwapInBy(copy, *by) : SwapInOf(copy);
    };
    transport::LinkBuckets links = Value(CreateNodeLinks(1, {link * 1e9}, {}, {}, copy_time), "links");
    Rig rig(site_, command, links, site_.memory());
    for (int round = 0; round <= rounds; ++round) {
      const double alone = Took(rig.Ask(order(small_, due.late)));
      rig.Evict("small");
      const std::uint64_t first = rig.Send(order(large_, due.large));
      std::this_thread::sleep_for(TransferTime(Bytes(kLarge / 10), {link * 1e9}));
      const double late = Took(rig.Ask(order(small_, due.late)));
      (void)rig.Await(first);
      rig.Evict("small");
      rig.Evict("large");
      if (round > 0) Say(absl::StrCat("late_arrival_delay_ms/", link, "/", name), late - alone, alone);
    }
  }

  // StreamBox (004), 7 and Fig. 17: two equals on a link on which each copy costs time. 16 KiB at a time get a third of its
  // bandwidth, as 4 of 12 GB/s there.
  void Equals(double link, int rounds) {
    const Duration copy_time = TransferTime(KiB(32), {link * 1e9});
    const Objectives none{std::nullopt, std::nullopt};
    const auto measure = [&](const std::string& name, const std::function<void(WorkerCommand&)>& change) {
      WorkerCommand command;
      command.link_sharing = "shared";
      change(command);
      LateArrival(link, "equals-" + name, command, rounds, none, copy_time);
    };
    measure("exclusive", [](WorkerCommand& command) { command.link_sharing = "exclusive"; });
    measure("shared", [](WorkerCommand&) {});
    measure("small-blocks", [](WorkerCommand& command) { command.block = KiB(16); });
    measure("no-batches", [](WorkerCommand& command) { command.batch = 1 << 20; });
    measure("unregistered", [](WorkerCommand& command) { command.swap = "pageable"; });
  }

 private:
  static constexpr Duration kBurst = std::chrono::microseconds(500);

  static double Bandwidth(const proto::WorkerOutcome& swapped) {
    return static_cast<double>(swapped.bytes()) / Took(swapped) * 1e-6;  // GB/s
  }
  // The percentage of the first transfer in all bytes that were moved while all were under way.
  static double ShareOfFirst(const std::vector<proto::WorkerOutcome>& first,
                             const std::vector<proto::WorkerOutcome>& others) {
    std::vector<const proto::WorkerOutcome*> all;
    for (const auto& outcome : first) all.push_back(&outcome);
    for (const auto& outcome : others) all.push_back(&outcome);
    std::int64_t begin = 0;
    std::int64_t end = INT64_MAX;
    for (const auto* outcome : all) {
      begin = std::max(begin, outcome->begin_ns());
      end = std::min(end, outcome->swap_in().group_ns(outcome->swap_in().group_ns_size() - 1));
    }
    const auto moved = [&](const proto::WorkerOutcome& outcome) {
      double bytes = 0;
      std::int64_t before = outcome.begin_ns();
      const auto size = static_cast<double>(outcome.swap_in().group_bytes());
      for (const std::int64_t at : outcome.swap_in().group_ns()) {
        if (at > begin && before < end) {
          const auto within = static_cast<double>(std::min(at, end) - std::max(before, begin));
          bytes += size * within / static_cast<double>(std::max<std::int64_t>(1, at - before));
        }
        before = at;
      }
      return bytes;
    };
    double sum = 0;
    for (const auto* outcome : all) sum += moved(*outcome);
    return 100 * moved(*all.front()) / sum;
  }

  Site site_;
  proto::HostCopy large_;
  proto::HostCopy small_;
  std::vector<proto::HostCopy> pair_;
};

int Main(int rounds, const std::vector<double>& speeds) {
  Links bench;
  for (const double link : speeds) {
    bench.Use(link, rounds);
    bench.Share(link, rounds);
    bench.ShareSwitch(link, 1, rounds);
    bench.ShareSwitch(link, 2, rounds);
    bench.FromPeer(link, rounds);
    for (const char* sharing : {"exclusive", "shared", "deadline"}) {
      WorkerCommand command;
      command.link_sharing = sharing;
      bench.LateArrival(link, sharing, command, rounds);
    }
    // As a worker runs them: with the same objective, so that the late request is due later, and without
    // objectives.
    bench.LateArrival(link, "deadline-same-objective", WorkerCommand(), rounds, {kLater, kLater});
    bench.LateArrival(link, "deadline-no-objectives", WorkerCommand(), rounds, {std::nullopt, std::nullopt});
    // What each part of the deadline policy contributes: the policy without it.
    WorkerCommand command;
    command.block = KiB(16);
    bench.LateArrival(link, "small-blocks", command, rounds);
    command = WorkerCommand();
    command.batch = 1 << 20;
    bench.LateArrival(link, "no-batches", command, rounds);
    command = WorkerCommand();
    command.swap = "pageable";
    bench.LateArrival(link, "unregistered", command, rounds);
    bench.Equals(link, rounds);
  }
  return 0;
}

}  // namespace
}  // namespace troupe::gpu::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: swap_links_bench ROUNDS LINK...\n");
    return 2;
  }
  std::vector<double> speeds;
  for (int i = 2; i < argc; ++i) speeds.push_back(std::atof(argv[i]));
  return troupe::gpu::bench::Main(std::max(1, std::atoi(argv[1])), speeds);
}
