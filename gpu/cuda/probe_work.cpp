// What the probe asks of a device with a stream: the rates of copies, and whether it computes.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.hpp"
#include "gpu/cuda/probe_parts.hpp"
#include "gpu/cuda/stream.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

using transport::SteadyNow;

constexpr Duration kPatience = std::chrono::seconds(20);
constexpr Bytes kWeights = Bytes(64);

// y = op(x, w): one step of a library.
absl::StatusOr<std::shared_ptr<DevicePlan>> Prepare(Device& device, const char* op) {
  const bool product = std::string_view(op) == "MatMul";
  const std::vector<std::int64_t> shape =
      product ? std::vector<std::int64_t>{4, 4} : std::vector<std::int64_t>{1, 1, 4, 4};
  const auto fill = [&](proto::TensorSpec* spec, const char* name) {
    spec->set_name(name);
    spec->set_type(proto::FP32);
    for (const std::int64_t dim : shape) spec->add_shape(dim);
  };
  proto::Model model;
  model.set_format_version(1);
  model.set_opset(13);
  fill(model.add_inputs(), "x");
  fill(model.add_outputs(), "y");
  auto* const step = model.add_steps();
  step->set_op(op);
  step->set_name(op);
  step->add_inputs("x");
  step->add_inputs("w");
  step->add_outputs("y");
  auto* const weight = model.add_weights();
  weight->set_name("w");
  weight->set_type(proto::FP32);
  for (int i = 0; i < (product ? 2 : 4); ++i) weight->add_shape(product ? 4 : 1);
  weight->set_length(product ? 64 : 4);
  model.set_weights_bytes(kWeights.count());
  const std::vector<std::byte> weights(kWeights.count());
  const std::vector<proto::TensorSpec> inputs = {model.inputs(0)};
  return device.Prepare(model, weights, inputs, proto::PRECISION_FP32);
}

// On these SMs: twice as it is put there, and once recorded.
absl::Status Run(Device& device, Stream& stream, const std::shared_ptr<DevicePlan>& plan,
                 const SmShare& share) {
  const std::vector<std::byte> weights(kWeights.count());
  LaunchArguments arguments;
  arguments.share = share;
  std::vector<DeviceRange> taken;
  absl::Status status;
  const auto take = [&](Bytes size) {
    auto range = device.Allocate(size);
    if (!range.ok()) status = range.status();
    if (range.ok()) taken.push_back(*range);
    return range.ok() ? *range : DeviceRange();
  };
  arguments.weights = take(kWeights);
  arguments.activations = take(plan->activation_bytes());
  arguments.inputs = {take(plan->input_bytes(0))};
  arguments.outputs = {take(plan->output_bytes(0))};
  if (status.ok()) status = stream.CopyIn(arguments.weights, weights, nullptr)->Wait(kPatience);
  for (int round = 0; round < 3 && status.ok(); ++round)
    status = stream.Launch(plan, arguments, nullptr)->Wait(kPatience);
  for (const DeviceRange& range : taken) device.Free(range);
  return status;
}

std::string Word(const absl::Status& status) {
  return status.ok() ? "works" : std::string(status.message());
}

using Plans = std::map<std::string, std::shared_ptr<DevicePlan>>;

// The plans of both libraries, or why there is none; and what their libraries take of the memory.
Plans PrepareAll(Device& device, MemoryLeft& left, Probed& probed) {
  Plans plans;
  absl::Status recorded;
  (void)left.Taken();
  for (const auto& [op, library] : {std::pair("MatMul", "cuBLAS"), std::pair("Conv", "cuDNN")}) {
    const auto plan = Prepare(device, op);
    Say(probed, "memory", absl::StrCat(library, ", with its first plan"), FormatBytes(left.Taken()));
    if (!plan.ok()) {
      Say(probed, "computes", absl::StrCat(op, " on all SMs"), Word(plan.status()));
      continue;
    }
    plans[op] = *plan;
    const absl::Status now = dynamic_cast<const CudaPlan&>(**plan).recorded();
    Say(probed, "recordings", op, Word(now));
    if (recorded.ok()) recorded = now;
  }
  probed.uses.push_back(
      recorded.ok() ? "Plans are recorded when they are made, so that their first launches load no code."
                    : absl::StrCat("First launches load their code, since nothing is recorded (",
                                   std::string(recorded.message()), ")."));
  return plans;
}

void ProbeShares(Device& device, Stream& stream, const Plans& plans, Probed& probed) {
  const ShareLadder& ladder = device.info().shares;
  bool works = true;
  ShareGate gate(ladder, 64);
  for (const std::uint32_t percent : {12U, 50U}) {
    const auto share = gate.Take(percent);
    if (!share) continue;
    for (const auto& [op, plan] : plans) {
      const Time begin = SteadyNow();
      const absl::Status status = Run(device, stream, plan, *share);
      works = works && status.ok();
      Say(probed, "shares", absl::StrCat(op, " on ", share->sms, " SMs"),
          status.ok() ? absl::StrCat("works; with what it makes first: ", Milliseconds(SteadyNow() - begin))
                      : Word(status));
    }
    gate.Give(*share);
  }
  probed.uses.push_back(
      absl::StrCat("Shares of the SMs come in steps of ", ladder.unit(), " of ", ladder.sms(),
                   works ? "."
                         : ", and a library does not work on them: run such functions without "
                           "sm_partition."));
}

}  // namespace

// The best of a few trains of copies, back to back, by the time of the whole.
void ProbeCopies(Device& device, Stream& stream, Probed& probed) {
  const Bytes largest = std::min(MiB(64), Bytes(device.memory().largest.count()));
  const auto room = device.Allocate(largest);
  if (!room.ok()) return;
  std::vector<std::byte> host(largest.count());
  const bool registered = device.RegisterHost(host).ok();
  for (Bytes size = KiB(256); size <= largest; size = size * 4) {
    double best_in = 0;
    double best_out = 0;
    // The end of all is seen when the host wakes, which costs as much as a small copy.
    const int count = std::clamp(static_cast<int>(MiB(64).count() / size.count()), 4, 64);
    for (int round = 0; round < 5; ++round) {
      for (const bool in : {true, false}) {
        const Time begin = SteadyNow();
        EventPtr last;
        for (int copy = 0; copy < count; ++copy) {
          const std::span<std::byte> bytes = std::span(host).first(size.count());
          const DeviceRange range = room->Part(Bytes(0), size);
          last = in ? stream.CopyIn(range, bytes, nullptr) : stream.CopyOut(bytes, range, nullptr);
        }
        if (!last->Wait(kPatience).ok()) return;
        double& best = in ? best_in : best_out;
        best =
            std::max(best, count * static_cast<double>(size.count()) / ToSeconds(SteadyNow() - begin) / 1e9);
      }
    }
    Say(probed, "link", absl::StrCat(size.count() >> 10, " KiB"),
        absl::StrFormat("%.2f GB/s in, %.2f GB/s out%s", best_in, best_out,
                        registered ? "" : ", not registered"));
  }
  if (registered) device.UnregisterHost(host);
  device.Free(*room);
}

void ProbeSteps(Device& device, Stream& stream, MemoryLeft& left, Probed& probed) {
  const Plans plans = PrepareAll(device, left, probed);
  for (const auto& [op, plan] : plans)
    Say(probed, "computes", absl::StrCat(op, " on all SMs"), Word(Run(device, stream, plan, SmShare())));
  if (!plans.empty())
    (void)Prepare(device, plans.begin()->first.c_str());  // waits for what the next lane needs
  Say(probed, "memory", "a lane, with its first launches", FormatBytes(left.Taken()));
  if (device.info().remark.empty()) return ProbeShares(device, stream, plans, probed);
  Say(probed, "shares", "of the SMs", device.info().remark);
  probed.uses.push_back("Functions with a share of the SMs run one at a time, on all of them.");
}

}  // namespace troupe::gpu::cuda
