// What the gate costs for each launch, without a device: from a run's arrival to its end, with many functions at
// the worker, each with a quota, and with the page that workers of one GPU share.
//   sharing_bench [--functions 100] [--launches 200000]     prints one JSON object
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "gpu/sharing/gate_page.hpp"
#include "gpu/sharing/token_scheduler.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::bench {
namespace {

struct Settings {
  std::uint32_t functions = 100;
  std::uint32_t launches = 200'000;
};

std::vector<std::string> Names(std::uint32_t count) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < count; ++i) names.push_back("function-" + std::to_string(i) + "/1");
  return names;
}

proto::GpuSharing SharingOf(std::uint32_t function) {
  proto::GpuSharing sharing;
  sharing.set_sm_partition(12);
  sharing.set_quota_request(1 + function % 5);
  sharing.set_quota_limit(100);
  return sharing;
}

// How many nanoseconds the choice of one launch takes while a run of every function waits. As the worker does, it
// stages runs whose shares fill two GPUs, ranks the staged runs that may begin, and launches the first of them.
double Measure(const Settings& settings, gpu::GatePage* page) {
  using transport::SteadyNow;
  gpu::TokenScheduler tokens({}, ShareLadder(132, 8, 16));
  const std::vector<std::string> names = Names(settings.functions);
  std::vector<proto::GpuSharing> sharing;
  for (std::uint32_t i = 0; i < settings.functions; ++i) sharing.push_back(SharingOf(i));
  for (std::uint32_t i = 0; i < settings.functions; ++i) tokens.Join(names[i], sharing[i], SteadyNow());
  constexpr std::uint32_t kStaged = 16;
  const auto begin = SteadyNow();
  for (std::uint32_t launch = 0; launch < settings.launches; ++launch) {
    const Time now = SteadyNow();
    const std::uint32_t own = launch % settings.functions;
    tokens.Join(names[own], sharing[own], now);
    for (std::uint32_t i = 0; i < kStaged; ++i) {
      const std::string& other = names[(launch + i) % settings.functions];
      if (tokens.MayBegin(other, now)) (void)tokens.RankOf(other, now);
    }
    if (page != nullptr) tokens.SetOthers(page->Others());
    const auto share = tokens.Begin(names[own], 12);
    TROUPE_CHECK(share.has_value(), "the GPU is free");
    if (page != nullptr) (void)page->Set(tokens.taken(), 1);
    (void)tokens.Charge(names[own], Duration(100), now);
    tokens.End(names[own], share);
    if (page != nullptr) page->Reduce(tokens.taken());
    tokens.Leave(names[own], now);
  }
  return static_cast<double>((SteadyNow() - begin).count()) / settings.launches;
}

int Main(const Settings& settings) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("sharing_bench-" + std::to_string(getpid()));
  std::filesystem::create_directory(directory);
  double alone = 0;
  double shared = 0;
  {
    auto page = gpu::GatePage::Open((directory / "gate").string(), 0);
    TROUPE_CHECK(page.ok(), "the gate's page can be made");
    alone = Measure(settings, nullptr);
    shared = Measure(settings, page->get());
  }
  std::filesystem::remove_all(directory);
  std::printf("{\"functions\":%u,\"launches\":%u,\"ns_per_launch\":%.1f,\"ns_per_launch_with_page\":%.1f}\n",
              settings.functions, settings.launches, alone, shared);
  return 0;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  CLI::App app("What the gate costs for each launch.", "sharing_bench");
  troupe::bench::Settings settings;
  app.add_option("--functions", settings.functions)->check(CLI::Range(1u, 100000u))->capture_default_str();
  app.add_option("--launches", settings.launches)->check(CLI::Range(1u, 100000000u))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return troupe::bench::Main(settings);
}
