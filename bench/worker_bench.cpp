// The link to a GPU worker, measured on a real worker process: order -> outcome of a no-op run, and swap-in
// bandwidth against the link's.
//     worker_bench [rounds]        prints a table; run it from the build directory's bin
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "gpu/worker/worker_client.hpp"
#include "gpu/worker/worker_process.hpp"
#include "proto/model.pb.h"
#include "transport/host_region.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);
constexpr BytesPerSecond kLink{6e9};

template <class T>
T Value(absl::StatusOr<T> value, const char* what) {
  if (!value.ok()) std::fprintf(stderr, "worker_bench: %s: %s\n", what, value.status().ToString().c_str());
  if (!value.ok()) std::exit(1);
  return *std::move(value);
}

// y = Relu(x), one row of four; weights of any size that no step reads.
proto::Model NoOpModel(std::size_t weights) {
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

class Bench {
 public:
  explicit Bench(const std::string& program) {
    std::string directory = std::filesystem::temp_directory_path() / "troupe-bench-XXXXXX";
    TROUPE_CHECK(mkdtemp(directory.data()) != nullptr, "no temporary directory");
    directory_ = directory;
    command_.program = program;
    command_.socket = directory_ + "/worker";
    command_.lease = Duration(0);
    transport::HostRegion::Options options;
    options.size = MiB(600);
    host_ = Value(transport::HostRegion::Create("bench", options), "host region");
    memory_ = Value(CreateVirtualMemory(0, GiB(1)), "device memory");
    links_ = std::make_unique<transport::LinkBuckets>(Value(CreateNodeLinks(1, kLink), "links"));
    auto process = Value(StartWorker(command_), "worker");
    proto::AdoptHello hello;
    hello.set_daemon_epoch(1);
    connection_ =
        Value(WorkerConnection::Adopt(command_.socket, hello, {host_->fd(), memory_.fd(), links_->fd()},
                                      std::move(process), kPatience),
              "adoption");
  }
  ~Bench() {
    (void)connection_->Kill();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  proto::HostCopy Place(const std::string& digest, std::size_t weights) {
    proto::HostCopy copy;
    copy.set_digest(digest);
    const std::string model = NoOpModel(weights).SerializeAsString();
    *copy.mutable_model() = Value(host_->Allocate(Bytes(model.size())), "room");
    std::memcpy(Value(host_->Writable(copy.model()), "room").data(), model.data(), model.size());
    *copy.mutable_weights() = Value(host_->Allocate(Bytes(weights)), "room");
    const auto bytes = Value(host_->Writable(copy.weights()), "room");
    std::memset(bytes.data(), 1, bytes.size());
    return copy;
  }
  proto::WorkerOutcome Ask(proto::WorkerOrder order) {
    order.set_sequence(++sequence_);
    TROUPE_CHECK(connection_->Send(order).ok(), "the ring is full");
    proto::WorkerOutcome outcome;
    while (!Value(connection_->Receive(outcome), "outcome")) {
      TROUPE_CHECK(connection_->reader().Wait(kPatience), "no outcome");
    }
    if (outcome.code() != 0) std::fprintf(stderr, "worker_bench: %s\n", outcome.message().c_str());
    TROUPE_CHECK(outcome.code() == 0, "an order failed");
    return outcome;
  }

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
        (void)Ask(*order);
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
    proto::WorkerOrder in;
    *in.mutable_swap_in()->mutable_model() = copy;
    proto::WorkerOrder out;
    out.mutable_evict()->set_digest(digest);
    std::vector<double> over;
    double first = 0;
    for (int i = 0; i < rounds; ++i) {
      const proto::WorkerOutcome outcome = Ask(in);
      const double took = static_cast<double>(outcome.end_ns() - outcome.begin_ns()) * 1e-9;
      (i == 0 ? first = took / ideal : over.emplace_back(took / ideal));
      (void)Ask(out);
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
    (void)Ask(prepare);
    proto::WorkerOrder in;
    *in.mutable_swap_in()->mutable_model() = copy;
    (void)Ask(in);
  }

 private:
  static void Print(const std::string& name, std::vector<double>& us) {
    std::sort(us.begin(), us.end());
    std::printf("%-28s p50 %7.1f us  p90 %7.1f us  p99 %7.1f us\n", name.c_str(), us[us.size() / 2],
                us[us.size() * 9 / 10], us[us.size() * 99 / 100]);
  }

  std::string directory_;
  WorkerCommand command_;
  std::unique_ptr<transport::HostRegion> host_;
  transport::MemoryFile memory_;
  std::unique_ptr<transport::LinkBuckets> links_;
  std::unique_ptr<WorkerConnection> connection_;
  std::uint64_t sequence_ = 0;
};

}  // namespace
}  // namespace troupe::gpu

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(100, std::atoi(argv[1])) : 5000;
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  troupe::gpu::Bench bench((here / "troupe-gpu-worker").string());
  bench.PrepareNoOp();
  bench.RoundTrips(rounds, troupe::Duration(0));
  bench.RoundTrips(rounds / 10, std::chrono::milliseconds(1));
  for (const std::size_t mib : {1, 10, 100, 400}) bench.SwapIn(mib << 20, 20);
  return 0;
}
