// The same networks in other ways: in another precision, without CUDA graphs, by persistent kernels.
#include "bench/device_bed.hpp"

namespace troupe::gpu::bench {
namespace {

constexpr int kWarm = 3;  // runs until graphs are recorded and replayed

// The network's compute time on a worker that has it.
double ComputeMs(Rig& rig, const HostedModel& model, proto::Precision precision, int rounds) {
  proto::WorkerOrder run = model.run;
  run.mutable_run()->set_precision(precision);
  std::vector<double> times;
  for (int i = 0; i < kWarm + rounds; ++i) {
    const double ms = static_cast<double>(rig.Ask(run).run().compute_ns()) * 1e-6;
    if (i >= kWarm) times.push_back(ms);
  }
  return Median(times);
}

void Prepare(Rig& rig, const HostedModel& model, proto::Precision precision) {
  proto::WorkerOrder prepare = model.prepare;
  prepare.mutable_prepare()->set_precision(precision);
  (void)rig.Ask(prepare);
}

void MeasureNetwork(Bed& bed, Rig& rig, Rig& without_graphs, Rig& persistent, const HostedModel& model) {
  const std::pair<const char*, proto::Precision> precisions[] = {
      {"tf32", proto::PRECISION_TF32}, {"bf16", proto::PRECISION_BF16}, {"fp16", proto::PRECISION_FP16}};
  for (Rig* const each : {&rig, &without_graphs, &persistent}) {
    Prepare(*each, model, proto::PRECISION_FP32);
    (void)each->Ask(SwapInOf(model.copy));
  }
  for (const auto& [name, precision] : precisions) Prepare(rig, model, precision);
  const int rounds = bed.options().rounds;
  for (int round = 0; round < rounds; ++round) {
    const double usual = ComputeMs(rig, model, proto::PRECISION_FP32, rounds);
    for (const auto& [name, precision] : precisions) {
      Say(absl::StrCat("variant_compute_ms/", model.digest, "/precision=", name),
          ComputeMs(rig, model, precision, rounds), usual);
    }
    Say(absl::StrCat("variant_compute_ms/", model.digest, "/graphs=off"),
        ComputeMs(without_graphs, model, proto::PRECISION_FP32, rounds), usual);
    // StreamBox (section 8) lost 3 %.
    Say(absl::StrCat("variant_compute_ms/", model.digest, "/kernels=persistent"),
        ComputeMs(persistent, model, proto::PRECISION_FP32, rounds), usual);
  }
  for (Rig* const each : {&rig, &without_graphs, &persistent}) each->Evict(model.digest);
}

}  // namespace

void MeasureVariants(Bed& bed) {
  if (!bed.real()) return Note("precisions and CUDA graphs: a virtual GPU has neither");
  const Bytes memory = bed.largest() + bed.options().spare;
  WorkerCommand command;
  const auto rig = bed.Start(command, memory);
  command.repeated = RepeatedLaunch::kStepByStep;
  const auto without_graphs = bed.Start(command, memory);
  command.repeated = RepeatedLaunch::kReplayed;
  command.kernels = KernelForm::kPersistent;
  const auto persistent = bed.Start(command, memory);
  for (const Network& network : bed.networks())
    MeasureNetwork(bed, *rig, *without_graphs, *persistent, network.model);
}

}  // namespace troupe::gpu::bench
