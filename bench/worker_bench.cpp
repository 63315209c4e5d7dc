// The link to a GPU worker, measured on a real worker process: order -> outcome of a no-op run, and swap-in
// bandwidth against the link's.
//     worker_bench [rounds]        prints a table; run it from the build directory's bin
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/worker_rig.hpp"

namespace troupe::gpu::bench {
namespace {

constexpr BytesPerSecond kLink{6e9};

class Bench {
 public:
  void RoundTrips(int rounds, Duration pause) {
    proto::WorkerOrder run;
    run.mutable_run()->set_digest("noop");
    auto* input = run.mutable_run()->add_inputs();
    *input->mutable_spec() = NoOpModel(0).inputs(0);
    input->mutable_data()->set_inlined(std::string(16, '\0'));
    std::vector<double> describe_us;
    std::vector<double> run_us;
    proto::WorkerOrder describe;
    describe.mutable_describe();
    for (int i = 0; i < rounds; ++i) {
      for (const auto& [order, times] : {std::pair(&describe, &describe_us), std::pair(&run, &run_us)}) {
        if (pause > Duration(0)) std::this_thread::sleep_for(pause);
        const Time begin = transport::SteadyNow();
        (void)rig_.Ask(*order);
        times->push_back(ToSeconds(transport::SteadyNow() - begin) * 1e6);
      }
    }
    const char* when = pause > Duration(0) ? "after a pause" : "back to back";
    Print(absl::StrCat("describe, ", when), describe_us);
    Print(absl::StrCat("no-op run, ", when), run_us);
  }

  void SwapIn(std::size_t bytes, int rounds) {
    const std::string digest = absl::StrCat("w", bytes);
    const proto::HostCopy copy = Place(digest, bytes);
    const double ideal = ToSeconds(TransferTime(Bytes(bytes), kLink));
    std::vector<double> over;
    double first = 0;
    for (int i = 0; i < rounds; ++i) {
      const proto::WorkerOutcome outcome = rig_.Ask(SwapInOf(copy));
      const double took = static_cast<double>(outcome.end_ns() - outcome.begin_ns()) * 1e-9;
      (i == 0 ? first = took / ideal : over.emplace_back(took / ideal));
      rig_.Evict(digest);
    }
    std::sort(over.begin(), over.end());
    std::printf(
        "swap in %9s at 6 GB/s: %6.2f GB/s, %.3f of the ideal time (p50; p90 %.3f); first touch %.2f\n",
        FormatBytes(Bytes(bytes)).c_str(),
        static_cast<double>(bytes) / (over[over.size() / 2] * ideal) * 1e-9, over[over.size() / 2],
        over[over.size() * 9 / 10], first);
  }

  void PrepareNoOp() {
    const proto::HostCopy copy = Place("noop", 64);
    proto::WorkerOrder prepare;
    *prepare.mutable_prepare()->mutable_model() = copy;
    *prepare.mutable_prepare()->add_inputs() = NoOpModel(0).inputs(0);
    (void)rig_.Ask(prepare);
    (void)rig_.Ask(SwapInOf(copy));
  }

 private:
  static void Print(const std::string& name, std::vector<double>& us) {
    std::sort(us.begin(), us.end());
    std::printf("%-28s p50 %7.1f us  p90 %7.1f us  p99 %7.1f us\n", name.c_str(), us[us.size() / 2],
                us[us.size() * 9 / 10], us[us.size() * 99 / 100]);
  }

  proto::HostCopy Place(const std::string& digest, std::size_t weights) {
    const std::vector<std::byte> bytes(weights, std::byte{1});
    return site_.PlaceModel(digest, NoOpModel(weights), site_.Place(bytes));
  }

  Site site_{MiB(600), GiB(1)};
  transport::LinkBuckets links_ = Value(CreateNodeLinks(1, kLink), "links");
  // The memory is untouched: the first swap of a size is a figure of its own.
  Rig rig_{site_, WorkerCommand(), links_, site_.other_memory()};
};

}  // namespace
}  // namespace troupe::gpu::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(100, std::atoi(argv[1])) : 5000;
  troupe::gpu::bench::Bench bench;
  bench.PrepareNoOp();
  bench.RoundTrips(rounds, troupe::Duration(0));
  bench.RoundTrips(rounds / 10, std::chrono::milliseconds(1));
  for (const std::size_t mib : {1, 10, 100, 400}) bench.SwapIn(mib << 20, 20);
  return 0;
}
