// What the gate costs a busy GPU in throughput: one worker with runs of a hundred functions, each
// with a quota that it never uses up, beside the same runs of a worker that lets every run race. And how soon the part of
// a GPU that a worker had when it was killed serves a run of another worker of that GPU.
//   gate_bench [--functions 100] [--run 14ms] [--runs 200] [--rounds 5]     prints one JSON object
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/worker_rig.hpp"

namespace troupe::gpu::bench {
namespace {

struct Settings {
  std::uint32_t functions = 100;
  std::string run = "14ms";
  std::uint32_t runs = 200;
  std::uint32_t rounds = 5;
};

WorkerCommand CommandOf(const std::string& profile, const char* sharing) {
  WorkerCommand command;
  command.compute = ComputeMode::kTimed;
  command.profile = profile;
  command.sharing = sharing;
  return command;
}

void BringNoOp(Rig& rig, Site& site, const std::string& digest) {
  const std::vector<std::byte> weights(64, std::byte{1});
  const proto::HostCopy copy = site.PlaceModel(digest, NoOpModel(64), site.Place(weights));
  proto::WorkerOrder prepare;
  *prepare.mutable_prepare()->mutable_model() = copy;
  *prepare.mutable_prepare()->add_inputs() = NoOpModel(0).inputs(0);
  (void)rig.Ask(prepare);
  (void)rig.Ask(SwapInOf(copy));
}

proto::WorkerOrder RunOf(const std::string& digest) {
  proto::WorkerOrder order;
  order.mutable_run()->set_digest(digest);
  auto* input = order.mutable_run()->add_inputs();
  *input->mutable_spec() = NoOpModel(0).inputs(0);
  input->mutable_data()->set_inlined(std::string(16, '\0'));
  return order;
}
// With the whole GPU as its share.
proto::WorkerOrder WholeRun(const std::string& digest) {
  proto::WorkerOrder order = RunOf(digest);
  order.mutable_run()->set_function(digest + "/1");
  order.mutable_run()->mutable_sharing()->set_sm_partition(100);
  return order;
}

// Runs without a share divide the GPU's time among them, and runs with the whole GPU as their share have it in turn: both
// serve as many runs a second as one run's time allows.
class GatedWorker {
 public:
  GatedWorker(Site& site, transport::LinkBuckets& links, transport::MemoryFile& memory,
              const std::string& profile, bool quotas)
      : quotas_(quotas), rig_(site, CommandOf(profile, quotas ? "fast" : "racing"), links, memory) {
    BringNoOp(rig_, site, "noop");
  }

  // Runs a second, with as many in flight as a node gives a GPU.
  double Rate(const Settings& settings) {
    constexpr std::uint32_t kInFlight = 16;
    std::uint32_t sent = 0;
    for (; sent < kInFlight; ++sent) (void)rig_.Send(NextRun(sent % settings.functions));
    const Time begin = transport::SteadyNow();
    for (std::uint32_t ended = 0; ended < settings.runs; ++ended, ++sent) {
      (void)rig_.AwaitAny();
      (void)rig_.Send(NextRun(sent % settings.functions));
    }
    const Duration took = transport::SteadyNow() - begin;
    for (std::uint32_t i = 0; i < kInFlight; ++i) (void)rig_.AwaitAny();
    return settings.runs / ToSeconds(took);
  }

 private:
  [[nodiscard]] proto::WorkerOrder NextRun(std::uint32_t function) const {
    proto::WorkerOrder order = quotas_ ? WholeRun("noop") : RunOf("noop");
    order.mutable_run()->set_function(absl::StrCat("function-", function, "/1"));
    if (quotas_) {
      order.mutable_run()->mutable_sharing()->set_quota_request(1);
      order.mutable_run()->mutable_sharing()->set_quota_limit(100);
    }
    return order;
  }

  const bool quotas_;
  Rig rig_;
};

// Milliseconds from the kill of a worker that has the whole GPU, for a run of an hour, to the end of a run of another
// worker that waits for the GPU meanwhile.
double FreedAfter(Site& site, transport::LinkBuckets& links, const std::string& profile) {
  WorkerCommand command = CommandOf(profile, "fast");
  command.gate = site.directory() + "/gate";
  auto holder = std::make_unique<Rig>(site, command, links, site.memory());
  command.gate_slot = 1;
  Rig waiting(site, command, links, site.other_memory());
  BringNoOp(*holder, site, "hour");
  BringNoOp(waiting, site, "noop");
  (void)holder->Send(WholeRun("hour"));
  // The holder's run has the GPU when a run beside it would have to wait, which no message tells: its worker is asked
  // twice over the ring that took the run.
  proto::WorkerOrder describe;
  describe.mutable_describe();
  (void)holder->Ask(describe);
  (void)holder->Ask(describe);
  const std::uint64_t sequence = waiting.Send(WholeRun("noop"));
  (void)waiting.Ask(describe);
  const Time killed = transport::SteadyNow();
  holder.reset();
  (void)waiting.Await(sequence);
  return 1e3 * ToSeconds(transport::SteadyNow() - killed);
}

void PrintList(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\":[", name);
  for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.2f", i > 0 ? "," : "", values[i]);
  std::printf("]");
}

int Main(const Settings& settings) {
  Site site(MiB(64), MiB(64));
  auto links = Value(CreateNodeLinks(1, BytesPerSecond(6e9)), "links");
  const std::string profile = site.directory() + "/profile";
  std::FILE* const file = std::fopen(profile.c_str(), "w");
  TROUPE_CHECK(file != nullptr, "the profile can be written");
  std::fputs(absl::StrCat("default ", settings.run, "\nhour 1h\n").c_str(), file);
  std::fclose(file);
  std::vector<double> with, without, freed;
  {
    GatedWorker quotas(site, links, site.memory(), profile, true);
    GatedWorker racing(site, links, site.other_memory(), profile, false);
    for (std::uint32_t round = 0; round < settings.rounds; ++round) {
      with.push_back(quotas.Rate(settings));
      without.push_back(racing.Rate(settings));
    }
  }
  for (std::uint32_t round = 0; round < settings.rounds; ++round)
    freed.push_back(FreedAfter(site, links, profile));
  std::printf("{\"functions\":%u,", settings.functions);
  PrintList("runs_per_second", with);
  std::printf(",");
  PrintList("runs_per_second_racing", without);
  std::printf(",");
  PrintList("freed_after_ms", freed);
  std::printf("}\n");
  return 0;
}

}  // namespace
}  // namespace troupe::gpu::bench

int main(int argc, char** argv) {
  CLI::App app("What the gate costs a busy GPU in throughput.", "gate_bench");
  troupe::gpu::bench::Settings settings;
  app.add_option("--functions", settings.functions)->check(CLI::Range(1u, 100000u))->capture_default_str();
  app.add_option("--run", settings.run, "time of a run")->capture_default_str();
  app.add_option("--runs", settings.runs, "of each round")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str();
  app.add_option("--rounds", settings.rounds)->check(CLI::Range(1u, 1000u))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return troupe::gpu::bench::Main(settings);
}
