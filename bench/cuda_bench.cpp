// What one real GPU does: copies by size and method beside a plain pinned copy, the cost of mapping, the
// start of a small function. Through the device interface, as a worker uses it; run by tests/gpu/run.sh.
//     cuda_bench DEVICE OUT.json      DEVICE: cuda:0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "gpu/cuda/device.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::SteadyNow;

constexpr int kRounds = 9;
constexpr Duration kPatience = std::chrono::minutes(1);
constexpr Bytes kMemory = GiB(1);
constexpr Bytes kLargest = MiB(128);

struct Spread {
  double least = 0;
  double median = 0;
  double most = 0;
};

Spread Measure(const std::function<double()>& once) {
  (void)once();  // the first touches pages and makes events
  std::vector<double> values;
  for (int round = 0; round < kRounds; ++round) values.push_back(once());
  std::ranges::sort(values);
  return {values.front(), values[values.size() / 2], values.back()};
}

// Figures by name, as lines of a table and as members of a JSON object.
class Report {
 public:
  void Add(const std::string& name, const char* unit, const Spread& s) {
    std::printf("%-44s %12.4g %12.4g %12.4g  %s\n", name.c_str(), s.median, s.least, s.most, unit);
    members_.push_back(absl::StrCat("    \"", name, "\": {\"unit\": \"", unit, "\", \"median\": ", s.median,
                                    ", \"least\": ", s.least, ", \"most\": ", s.most, "}"));
  }
  [[nodiscard]] std::string Json(const DeviceInfo& info) const {
    return absl::StrCat("{\n  \"device\": \"", info.name, "\",\n  \"rounds\": ", kRounds,
                        ",\n  \"figures\": {\n", absl::StrJoin(members_, ",\n"), "\n  }\n}\n");
  }

 private:
  std::vector<std::string> members_;
};

double Await(const EventPtr& event, Time begin) {
  const absl::Status status = event->Wait(kPatience);
  if (!status.ok()) {
    std::fprintf(stderr, "cuda_bench: %s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  return ToSeconds(SteadyNow() - begin);
}

void MeasureCopies(Device& device, Report& report) {
  const auto stream = device.MakeStream();
  const DeviceRange room = *device.Allocate(kLargest);
  std::vector<std::byte> pageable(kLargest.count(), std::byte{1});
  std::vector<std::byte> registered(kLargest.count(), std::byte{2});
  if (!device.RegisterHost(registered).ok())
    std::fprintf(stderr, "cuda_bench: host memory is not registered\n");
  const double plain = device.info().link.value / 1e9;
  report.Add("plain_pinned_copy", "GB/s", {plain, plain, plain});
  for (Bytes size = KiB(64); size <= kLargest; size = size * 4) {
    for (const auto& [method, host] :
         {std::pair("registered", &registered), std::pair("pageable", &pageable)}) {
      const auto in = [&] {
        return static_cast<double>(size.count()) / 1e9 /
               Await(stream->CopyIn(room, std::span(*host).first(size.count()), nullptr), SteadyNow());
      };
      report.Add(absl::StrCat("copy_in_", method, "_", size.count() >> 10, "KiB"), "GB/s", Measure(in));
    }
    const auto out = [&] {
      return static_cast<double>(size.count()) / 1e9 /
             Await(stream->CopyOut(std::span(registered).first(size.count()), room.Part(Bytes(0), size),
                                   nullptr),
                   SteadyNow());
    };
    report.Add(absl::StrCat("copy_out_", size.count() >> 10, "KiB"), "GB/s", Measure(out));
  }
  // As a swap does it: blocks of 2 MiB, one behind the other.
  const Bytes block = MiB(2);
  const auto blocks = [&] {
    const Time begin = SteadyNow();
    EventPtr last;
    for (Bytes at; at < kLargest; at += block) {
      last = stream->CopyIn(room.Part(at, block), std::span(registered).subspan(at.count(), block.count()),
                            nullptr);
    }
    return static_cast<double>(kLargest.count()) / 1e9 / Await(last, begin);
  };
  report.Add("copy_in_registered_blocks_of_2MiB", "GB/s", Measure(blocks));
  device.UnregisterHost(registered);
  device.Free(room);
}

void MeasureMapping(Device& device, Report& report) {
  const Bytes unit = device.MappingUnit();
  const DeviceRange room = *device.Allocate(unit * 9);
  const auto place = reinterpret_cast<std::uintptr_t>(room.address);
  const Bytes skip((unit.count() - place % unit.count()) % unit.count());
  for (const std::uint64_t count : {1, 8}) {
    const std::vector<DeviceRange> pieces = {room.Part(skip, unit * count)};
    double unmapped = 0;
    const auto once = [&] {
      const Time begin = SteadyNow();
      const auto mapped = device.Map(0, pieces);
      const double seconds = ToSeconds(SteadyNow() - begin);
      if (!mapped.ok()) return 0.0;
      const Time end = SteadyNow();
      device.Unmap(*mapped);
      unmapped = ToSeconds(SteadyNow() - end) * 1e6;
      return seconds * 1e6;
    };
    report.Add(absl::StrCat("map_and_set_access_", count, "_units"), "us", Measure(once));
    report.Add(absl::StrCat("unmap_call_", count, "_units"), "us", {unmapped, unmapped, unmapped});
  }
  device.Free(room);
}

// y = Relu(x + w) on 4 MiB: from its weights on the host to its result on the GPU.
proto::Model SmallFunction(std::int64_t columns) {
  const auto spec = [&](proto::TensorSpec* tensor, const char* name) {
    tensor->set_name(name);
    tensor->set_type(proto::FP32);
    tensor->add_shape(columns);
  };
  proto::Model model;
  model.set_format_version(1);
  model.set_opset(13);
  spec(model.add_inputs(), "x");
  spec(model.add_outputs(), "y");
  auto* const step = model.add_steps();
  step->set_op("Add");
  for (const char* const name : {"x", "w"}) step->add_inputs(name);
  step->add_outputs("y");
  auto* const weight = model.add_weights();
  weight->set_name("w");
  weight->set_type(proto::FP32);
  weight->add_shape(columns);
  weight->set_length(static_cast<std::uint64_t>(columns) * sizeof(float));
  model.set_weights_bytes(weight->length());
  return model;
}

void MeasureStart(Device& device, Report& report) {
  constexpr std::int64_t kColumns = 1 << 20;
  const proto::Model model = SmallFunction(kColumns);
  std::vector<std::byte> weights(model.weights_bytes());
  const std::vector<proto::TensorSpec> inputs = {model.inputs(0)};
  double prepared = 0;
  std::shared_ptr<DevicePlan> plan;
  const auto prepare = [&] {
    const Time begin = SteadyNow();
    auto made = device.Prepare(model, weights, inputs, proto::PRECISION_FP32);
    if (made.ok()) plan = *made;
    prepared = ToSeconds(SteadyNow() - begin) * 1e3;
    return prepared;
  };
  report.Add("prepare_one_step", "ms", Measure(prepare));
  if (plan == nullptr) return;
  if (!device.RegisterHost(weights).ok()) return;
  const auto stream = device.MakeStream();
  LaunchArguments arguments;
  arguments.weights = *device.Allocate(plan->weights_bytes());
  arguments.activations = *device.Allocate(plan->activation_bytes());
  arguments.inputs = {*device.Allocate(plan->input_bytes(0))};
  arguments.outputs = {*device.Allocate(plan->output_bytes(0))};
  const auto resident = [&] { return Await(stream->Launch(plan, arguments, nullptr), SteadyNow()) * 1e3; };
  const auto swapped = [&] {
    const Time begin = SteadyNow();
    stream->CopyIn(arguments.weights, weights, nullptr);
    return Await(stream->Launch(plan, arguments, nullptr), begin) * 1e3;
  };
  report.Add("run_resident_4MiB", "ms", Measure(resident));
  report.Add("swap_and_run_4MiB", "ms", Measure(swapped));
  for (const DeviceRange& range :
       {arguments.weights, arguments.activations, arguments.inputs[0], arguments.outputs[0]})
    device.Free(range);
  device.UnregisterHost(weights);
}

int Main(const std::string& name, const std::string& out) {
  CudaOptions options;
  options.name = name;
  options.memory = kMemory;
  if (const char* const driver = std::getenv("TROUPE_CUDA_DRIVER")) options.driver = driver;
  if (!absl::SimpleAtoi(absl::StripPrefix(name, "cuda:"), &options.ordinal)) {
    std::fprintf(stderr, "cuda_bench: %s is no device; write cuda:0\n", name.c_str());
    return 2;
  }
  const Time begin = SteadyNow();
  const CudaOpened opened = cuda::Open(options);
  if (opened.device == nullptr) {
    std::fprintf(stderr, "cuda_bench: %s\n", opened.why.c_str());
    return 1;
  }
  const double seconds = ToSeconds(SteadyNow() - begin);
  Report report;
  std::printf("%-44s %12s %12s %12s\n", "figure", "median", "least", "most");
  report.Add("open_device_with_1GiB", "s", {seconds, seconds, seconds});
  MeasureCopies(*opened.device, report);
  MeasureMapping(*opened.device, report);
  MeasureStart(*opened.device, report);
  std::ofstream file(out);
  file << report.Json(opened.device->info());
  return file.good() ? 0 : 1;
}

}  // namespace
}  // namespace troupe::gpu

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: cuda_bench DEVICE OUT.json\n");
    return 2;
  }
  return troupe::gpu::Main(argv[1], argv[2]);
}
