#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "cluster/autoscaling/autoscaler.hpp"
#include "tests/draws.hpp"

namespace troupe::cluster::autoscaler_property_test {
namespace {

using std::chrono::seconds;

ScaledFunction Draw(const std::string& name, Random& random) {
  constexpr const char* kPolicies[] = {"troupe", "fast-scaler", "hpa"};
  constexpr const char* kForecasts[] = {"last", "holt", "season", "oracle"};
  ScaledFunction function{.name = name,
                          .policy = kPolicies[random.Below(3)],
                          .forecast = kForecasts[random.Below(4)],
                          .memory = MiB(100 + random.Below(400)),
                          .weights = MiB(random.Below(1000))};
  function.limits = {.min_instances = static_cast<std::uint32_t>(random.Below(3)),
                     .max_instances = static_cast<std::uint32_t>(3 + random.Below(10)),
                     .target_utilisation = 0.3 + 0.7 * random.Uniform(),
                     .hold = seconds(random.Below(20)),
                     .idle = seconds(5 + random.Below(20)),
                     .drain = seconds(random.Below(10))};
  if (random.Below(4) == 0) function.spread = Spread::kByNode;
  if (random.Below(4) == 0) {
    function.kinds = {"v100"};
    return function;
  }
  const double saturation = 0.1 + 0.9 * random.Uniform();
  const double rate = 5 + 200 * random.Uniform();
  for (const std::uint32_t sms : {6, 12, 24, 50, 60, 80, 100})
    for (const std::uint32_t quota : {20, 40, 60, 80, 100})
      function.points["v100"].push_back(
          {.extent = {quota, sms},
           .per_second = rate * std::min(sms / 100.0 / saturation, 1.0) * quota / 100,
           .run = FromSeconds(1 / rate)});
  return function;
}

// What is booked are the instances, of each function no more than it may have, and no GPU is booked twice.
void ExpectBookedAsHeld(const Autoscaler& scaler, const std::map<std::string, ScaledFunction>& functions) {
  std::size_t instances = 0;
  for (const auto& [name, function] : functions) {
    const auto ids = scaler.InstancesOf(name);
    instances += ids.size();
    std::map<std::string, int> on_node;
    for (const InstanceId id : ids) {
      const Booking* booking = scaler.table().Find(id);
      ASSERT_NE(booking, nullptr);
      ASSERT_EQ(booking->request->function, name);
      ++on_node[scaler.table().gpus().at(scaler.table().GpuOf(id)).gpu().node];
    }
    for (const auto& [node, count] : on_node) {
      ASSERT_TRUE(count == 1 || function.spread == Spread::kAnywhere) << node;
    }
  }
  ASSERT_EQ(instances, scaler.table().size());
  for (const auto& [name, gpu] : scaler.table().gpus()) {
    std::uint32_t area = 0;
    for (const auto& [id, booking] : gpu.bookings()) {
      area += booking.place.area();
      ASSERT_LE(booking.place.right(), kWholeGpu);
      ASSERT_LE(booking.place.top(), kWholeGpu);
      for (const auto& [other, second] : gpu.bookings())
        ASSERT_TRUE(id == other || !booking.place.Overlaps(second.place));
    }
    ASSERT_LE(area, kWholeGpu * kWholeGpu);
    ASSERT_LE(gpu.UsedMemory(), gpu.gpu().memory);
  }
}

TEST(AutoscalerProperty, WhatIsBookedAreTheInstancesWhateverComesAndGoes) {
  std::map<ScaleAction, int> seen;
  for (std::uint64_t seed = 1; seed <= test::Draws(16u); ++seed) {
    Random random(seed);
    Autoscaler scaler({.replan = {.steps = 500}});
    std::map<std::string, ScaledFunction> functions;
    std::map<InstanceId, std::string> draining;
    const auto add_gpu = [&](int i) {
      ASSERT_TRUE(scaler
                      .AddGpu({.name = "gpu" + std::to_string(i),
                               .node = "node" + std::to_string(i / 2),
                               .kind = "v100",
                               .memory = GiB(4)})
                      .ok());
    };
    for (int i = 0; i < 4; ++i) add_gpu(i);
    Time now{};
    for (int step = 0; step < 120; ++step) {
      now += seconds(1);
      const std::string name = "f" + std::to_string(random.Below(5));
      if (random.Below(20) == 0) {
        if (functions.contains(name)) {
          scaler.RemoveFunction(name);
          functions.erase(name);
        } else {
          functions[name] = Draw(name, random);
          ASSERT_TRUE(scaler.AddFunction(functions[name]).ok());
        }
      }
      if (random.Below(40) == 0) {
        const int gpu = static_cast<int>(random.Below(4));
        for (const auto& decision : scaler.RemoveGpu("gpu" + std::to_string(gpu), now))
          ++seen[decision.action];
        ExpectBookedAsHeld(scaler, functions);
        add_gpu(gpu);
      }
      std::map<std::string, FunctionLoad> loads;
      for (const auto& [function, of] : functions) {
        if (random.Below(10) == 0) continue;  // its report is late
        const bool quiet = (step / 40 + function.back()) % 3 == 0;
        const double rate = quiet ? 0 : 60 * random.Uniform();
        loads[function] = {.arrived_per_second = rate,
                           .served_per_second = rate * random.Uniform(),
                           .waiting = quiet ? 0 : random.Below(10),
                           .busy = random.Uniform(),
                           .known_per_second = 60 * random.Uniform()};
      }
      std::map<std::string, std::size_t> before;
      for (const auto& [function, of] : functions) before[function] = scaler.InstancesOf(function).size();
      for (const auto& decision : scaler.Tick(loads, now)) {
        ++seen[decision.action];
        ASSERT_FALSE(decision.reason.empty());
        if (decision.action == ScaleAction::kDrain) draining[decision.instance] = decision.function;
      }
      ExpectBookedAsHeld(scaler, functions);
      if (!draining.empty() && random.Below(3) == 0) {
        const auto it =
            std::next(draining.begin(), static_cast<std::ptrdiff_t>(random.Below(draining.size())));
        scaler.Drained(it->first, now);
        draining.erase(it);
        ExpectBookedAsHeld(scaler, functions);
      }
      for (const auto& [function, of] : functions) {
        std::size_t serving = 0;
        for (const InstanceId id : scaler.InstancesOf(function)) serving += draining.contains(id) ? 0 : 1;
        ASSERT_LE(serving, of.limits.max_instances) << function;
        ASSERT_LE(scaler.HistoryOf(function).size(), FunctionScaler::kKeptDecisions);
      }
    }
  }
  for (const ScaleAction action :
       {ScaleAction::kAdd, ScaleAction::kResize, ScaleAction::kDrain, ScaleAction::kRemove,
        ScaleAction::kBindLate, ScaleAction::kMove, ScaleAction::kNoRoom})
    EXPECT_GT(seen[action], 0) << static_cast<int>(action);
}

}  // namespace
}  // namespace troupe::cluster::autoscaler_property_test
