// What one real GPU does: copies by size and method beside a plain pinned copy, the cost of mapping, and the
// start of a small function. It goes through the device interface, as a worker does; bench/gpu.py runs it and
// says what the lines that it prints mean.
//     cuda_bench DEVICE [MIB]      DEVICE: cuda:0; MIB: the largest copy
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bench/lines.hpp"
#include "gpu/cuda/device.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::bench {
namespace {

using transport::SteadyNow;

constexpr int kRounds = 9;
constexpr Duration kPatience = std::chrono::minutes(1);

// The first run, which does not count, touches pages and makes events.
void Measure(const std::string& name, const std::function<double()>& once) {
  (void)once();
  for (int round = 0; round < kRounds; ++round) Say(name, once());
}
void Measure(const std::string& name, const std::function<double()>& once, double baseline) {
  (void)once();
  for (int round = 0; round < kRounds; ++round) Say(name, once(), baseline);
}

double Await(const EventPtr& event, Time begin) {
  const absl::Status status = event->Wait(kPatience);
  if (!status.ok()) {
    std::fprintf(stderr, "cuda_bench: %s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  return ToSeconds(SteadyNow() - begin);
}

void MeasureCopies(Device& device, Bytes largest) {
  const auto stream = device.MakeStream();
  const DeviceRange room = *device.Allocate(largest);
  std::vector<std::byte> pageable(largest.count(), std::byte{1});
  std::vector<std::byte> registered(largest.count(), std::byte{2});
  if (!device.RegisterHost(registered).ok())
    std::fprintf(stderr, "cuda_bench: host memory is not registered\n");
  const double plain = device.info().link.value / 1e9;
  Say("plain_pinned_copy", plain);
  const auto rate = [](Bytes size, double seconds) {
    return static_cast<double>(size.count()) / 1e9 / seconds;
  };
  for (Bytes size = KiB(64); size <= largest; size = size * 2) {
    const std::string at = absl::StrCat("/", size.count() >> 10, "KiB");
    for (const auto& [method, host] :
         {std::pair("registered", &registered), std::pair("pageable", &pageable)}) {
      const std::span<const std::byte> from = std::span(*host).first(size.count());
      const auto in = [&] {
        const Time begin = SteadyNow();
        return rate(size, Await(stream->CopyIn(room, from, nullptr), begin));
      };
      Measure(absl::StrCat("copy_in/", method, at), in, plain);
    }
    const std::span<std::byte> to = std::span(registered).first(size.count());
    const auto out = [&] {
      const Time begin = SteadyNow();
      return rate(size, Await(stream->CopyOut(to, room.Part(Bytes(0), size), nullptr), begin));
    };
    Measure(absl::StrCat("copy_out/registered", at), out, plain);
  }
  // The copy is made as a swap makes it: blocks of 2 MiB, one behind the other.
  const Bytes block = std::min(MiB(2), largest);
  const auto blocks = [&] {
    const Time begin = SteadyNow();
    EventPtr last;
    for (Bytes at; at < largest; at += block) {
      last = stream->CopyIn(room.Part(at, block), std::span(registered).subspan(at.count(), block.count()),
                            nullptr);
    }
    return rate(largest, Await(last, begin));
  };
  Measure("copy_in/registered_blocks_of_2MiB", blocks, plain);
  device.UnregisterHost(registered);
  device.Free(room);
}

void MeasureMapping(Device& device) {
  const Bytes unit = device.MappingUnit();
  const DeviceRange room = *device.Allocate(unit * 9);
  const auto place = reinterpret_cast<std::uintptr_t>(room.address);
  const Bytes skip((unit.count() - place % unit.count()) % unit.count());
  for (const std::uint64_t count : {1, 8}) {
    const std::vector<DeviceRange> pieces = {room.Part(skip, unit * count)};
    for (int round = 0; round < kRounds; ++round) {
      const Time begin = SteadyNow();
      const auto mapped = device.Map(0, pieces);
      const Time there = SteadyNow();
      if (!mapped.ok()) break;
      device.Unmap(*mapped);
      const Time gone = SteadyNow();
      Say(absl::StrCat("map_and_set_access_us/units=", count), ToSeconds(there - begin) * 1e6);
      Say(absl::StrCat("unmap_call_us/units=", count), ToSeconds(gone - there) * 1e6);
    }
  }
  device.Free(room);
}

// y = Relu(x + w) on 4 MiB, from the weights on the host to the result on the GPU.
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

void MeasureStart(Device& device) {
  constexpr std::int64_t kColumns = 1 << 20;
  const proto::Model model = SmallFunction(kColumns);
  std::vector<std::byte> weights(model.weights_bytes());
  const std::vector<proto::TensorSpec> inputs = {model.inputs(0)};
  std::shared_ptr<DevicePlan> plan;
  const auto prepare = [&] {
    const Time begin = SteadyNow();
    auto made = device.Prepare(model, weights, inputs, proto::PRECISION_FP32);
    if (made.ok()) plan = *made;
    return ToSeconds(SteadyNow() - begin) * 1e3;
  };
  Measure("prepare_one_step_ms", prepare);
  if (plan == nullptr) return;
  if (!device.RegisterHost(weights).ok()) return;
  const auto stream = device.MakeStream();
  LaunchArguments arguments;
  arguments.weights = *device.Allocate(plan->weights_bytes());
  arguments.activations = *device.Allocate(plan->activation_bytes());
  arguments.inputs = {*device.Allocate(plan->input_bytes(0))};
  arguments.outputs = {*device.Allocate(plan->output_bytes(0))};
  const auto resident = [&] {
    const Time begin = SteadyNow();
    return Await(stream->Launch(plan, arguments, nullptr), begin) * 1e3;
  };
  const auto swapped = [&] {
    const Time begin = SteadyNow();
    stream->CopyIn(arguments.weights, weights, nullptr);
    return Await(stream->Launch(plan, arguments, nullptr), begin) * 1e3;
  };
  Measure("run_resident_4MiB_ms", resident);
  Measure("swap_and_run_4MiB_ms", swapped);
  for (const DeviceRange& range :
       {arguments.weights, arguments.activations, arguments.inputs[0], arguments.outputs[0]})
    device.Free(range);
  device.UnregisterHost(weights);
}

int Main(const std::string& name, Bytes largest) {
  CudaOptions options;
  options.name = name;
  options.memory = largest * 2 + MiB(32);
  options.addresses = WeightAddresses::kMapped;
  if (const char* const driver = std::getenv("TROUPE_CUDA_DRIVER")) options.driver = driver;
  if (!absl::SimpleAtoi(absl::StripPrefix(name, "cuda:"), &options.ordinal)) {
    std::fprintf(stderr, "cuda_bench: %s is not a device; write cuda:0\n", name.c_str());
    return 2;
  }
  const Time begin = SteadyNow();
  const CudaOpened opened = cuda::Open(options);
  if (opened.device == nullptr) {
    std::fprintf(stderr, "cuda_bench: %s\n", opened.why.c_str());
    return 1;
  }
  Say("open_device_s", ToSeconds(SteadyNow() - begin));
  MeasureCopies(*opened.device, largest);
  MeasureMapping(*opened.device);
  MeasureStart(*opened.device);
  return 0;
}

}  // namespace
}  // namespace troupe::gpu::bench

int main(int argc, char** argv) {
  const int mib = argc == 3 ? std::atoi(argv[2]) : 128;
  if (argc < 2 || argc > 3 || mib < 1) {
    std::fprintf(stderr, "usage: cuda_bench DEVICE [MIB]\n");
    return 2;
  }
  return troupe::gpu::bench::Main(argv[1], troupe::MiB(static_cast<std::uint64_t>(mib)));
}
