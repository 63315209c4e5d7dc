// A run whose model comes over the link, against the limit of the pipeline.
//
// usage: swap_run_bench MODEL.onnx ROUNDS LINK...      LINK in GB/s
//
// Each round measures every variant in turn, on workers of their own that share the device's memory. Prints
// "name value [baseline]" lines: see bench/swap.py for what they mean.
#include <algorithm>

#include "bench/hosted_model.hpp"
#include "bench/model_files.hpp"
#include "bench/worker_rig.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/swap/swap_policy.hpp"

namespace troupe::gpu::bench {
namespace {

// The model under test, and another one with the same weights that is never run and only copied beside it.
struct Subject : HostedModel {
  Subject(Site& site, const PackedModel& packed, const std::vector<proto::TensorSpec>& inputs)
      : HostedModel(site, "subject", packed.model, site.Place(packed.weights), inputs),
        beside(site.PlaceModel("beside", NoOpModel(weights), copy.weights())) {
    run.mutable_run()->set_trace(true);
  }
  proto::HostCopy beside;
};

// The milliseconds from the first step to each step and to the end.
std::vector<double> StepTimes(const proto::RunOutcome& run) {
  std::vector<double> times;
  const auto& begins = run.step_begin_ns();
  for (int i = 1; i < begins.size(); ++i)
    times.push_back(static_cast<double>(begins[i] - begins[i - 1]) * 1e-6);
  const std::int64_t end = run.first_step_ns() + run.compute_ns();
  if (!begins.empty()) times.push_back(static_cast<double>(end - begins[begins.size() - 1]) * 1e-6);
  return times;
}

// Of several runs the one with the median total.
std::vector<double> MedianRun(std::vector<std::vector<double>> runs) {
  const auto total = [](const std::vector<double>& steps) {
    double sum = 0;
    for (const double step : steps) sum += step;
    return sum;
  };
  std::ranges::sort(runs, {}, total);
  return runs[runs.size() / 2];
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

class Variant {
 public:
  Variant(Site& site, Subject& subject, std::string name, transport::LinkBuckets& links)
      : name_(std::move(name)), subject_(subject) {
    WorkerCommand command;
    // Variants with weights in adjacent memory, and the default one with mapped weights.
    command.swap = name_ == "mapped" ? std::string(kDefaultSwap) : name_;
    command.addresses = name_ == "mapped" ? WeightAddresses::kMapped : WeightAddresses::kAdjacent;
    rig_ = std::make_unique<Rig>(site, command, links, site.memory());
  }
  [[nodiscard]] const std::string& name() const { return name_; }

  // Nothing is prepared: the plan is made while the model comes.
  double Unprepared() {
    const std::uint64_t swap = rig_->Send(SwapInOf(subject_.copy));
    proto::WorkerOrder run = subject_.run;
    *run.mutable_run()->mutable_model() = subject_.copy;
    const proto::WorkerOutcome ran = rig_->Await(rig_->Send(std::move(run)));
    const proto::WorkerOutcome swapped = rig_->Await(swap);
    rig_->Evict("subject");
    return static_cast<double>(ran.run().first_step_ns() - swapped.begin_ns()) * 1e-6;
  }
  // The model is resident and runs alone, or with as many bytes copied beside it: the times of its steps.
  std::vector<double> Resident(bool beside) {
    (void)rig_->Ask(SwapInOf(subject_.copy));
    (void)rig_->Ask(subject_.run);  // first touch of the activations
    std::uint64_t other = 0;
    if (beside) other = rig_->Send(SwapInOf(subject_.beside));
    const proto::WorkerOutcome ran = rig_->Ask(subject_.run);
    if (beside) {
      (void)rig_->Await(other);
      rig_->Evict("beside");
    }
    rig_->Evict("subject");
    return StepTimes(ran.run());
  }
  struct Swapped {
    double total = 0;  // from the orders until the outputs are there
    double start = 0;  // from the orders until the first step runs
    double link = 0;   // from the orders until all groups are there
    std::vector<double> groups;
    std::uint64_t group_bytes = 0;
  };
  Swapped SwapAndRun() {
    const std::uint64_t swap = rig_->Send(SwapInOf(subject_.copy));
    const proto::WorkerOutcome ran = rig_->Await(rig_->Send(subject_.run));
    const proto::WorkerOutcome swapped = rig_->Await(swap);
    rig_->Evict("subject");
    Swapped result;
    const auto since = [&](std::int64_t at) { return static_cast<double>(at - swapped.begin_ns()) * 1e-6; };
    result.total = since(ran.end_ns());
    result.start = since(ran.run().first_step_ns());
    for (const std::int64_t at : swapped.swap_in().group_ns()) result.groups.push_back(since(at));
    result.link = result.groups.back();
    result.group_bytes = swapped.swap_in().group_bytes();
    return result;
  }

 private:
  std::string name_;
  Subject& subject_;
  std::unique_ptr<Rig> rig_;
};

// The time at which the bytes up to `end` had arrived; a step that reads nothing counts with the first group.
double ArrivalOf(std::uint64_t end, const Variant::Swapped& swapped) {
  const std::size_t group = end == 0 ? 0 : (end - 1) / swapped.group_bytes;
  return swapped.groups[std::min(group, swapped.groups.size() - 1)];
}

// The end of the last step if each began as soon as its groups were there and the step before had ended.
double PipelineBound(const std::vector<double>& steps, const std::vector<std::uint64_t>& ends,
                     const Variant::Swapped& swapped) {
  double now = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i == 0 || ends[i] > 0) now = std::max(now, ArrivalOf(ends[i], swapped));
    now += steps[i];
  }
  return now;
}

void Measure(Site& site, Subject& subject, const std::vector<std::uint64_t>& ends, double link, int rounds) {
  transport::LinkBuckets links = Value(CreateNodeLinks(1, {link * 1e9}), "links");
  std::vector<Variant> variants;
  variants.emplace_back(site, subject, "mapped", links);
  for (const auto& policy : SwapPolicies())
    variants.emplace_back(site, subject, std::string(policy.name), links);
  const std::string at = absl::StrCat("/", link);
  for (Variant& variant : variants) {
    const double start = variant.Unprepared();
    if (variant.name() == kDefaultSwap) Say(absl::StrCat("function_start_unprepared_ms", at), start);
  }
  Variant& grouped = *std::ranges::find(variants, std::string(kDefaultSwap), &Variant::name);
  std::vector<std::vector<double>> beside;
  for (int round = 0; round < rounds; ++round) {
    beside.push_back(grouped.Resident(true));
    Say(absl::StrCat("run_ms", at), Sum(beside.back()), Sum(grouped.Resident(false)));
  }
  const std::vector<double> steps = MedianRun(std::move(beside));
  TROUPE_CHECK(steps.size() == ends.size(), "the trace has a time for each step");
  for (int round = 0; round < rounds; ++round) {
    double limit = 0;
    double adjacent = 0;
    for (auto variant = variants.rbegin(); variant != variants.rend(); ++variant) {
      const Variant::Swapped swapped = variant->SwapAndRun();
      if (variant->name() == kDefaultSwap) {
        limit = PipelineBound(steps, ends, swapped);
        adjacent = swapped.total;
        Say(absl::StrCat("first_group_ms", at), swapped.groups.front());
        Say(absl::StrCat("function_start_ms", at), swapped.start, 2 + ArrivalOf(ends.front(), swapped));
        Say(absl::StrCat("swap_run_over_max", at), swapped.total / std::max(swapped.link, Sum(steps)));
        Say(absl::StrCat("limit_ms", at), limit);
      }
      if (variant->name() == "mapped")
        Say(absl::StrCat("mapped_swap_over_adjacent", at), swapped.total / adjacent);
      Say(absl::StrCat("swap_run_over_limit", at, "/", variant->name()), swapped.total / limit);
      Say(absl::StrCat("swap_run_ms", at, "/", variant->name()), swapped.total, limit);
    }
  }
}

int Main(const std::string& path, int rounds, const std::vector<double>& speeds) {
  ImportedModel imported = Value(ImportOnnx(ReadFile(path), {}), path.c_str());
  const auto inputs = ConcreteInputs(imported.model);
  PackedModel packed = Value(PackModel(imported.model, imported.weights, inputs), "packing");
  imported.weights = {};
  std::vector<std::uint64_t> ends;
  Bytes device = MiB(64);
  {
    const auto plan = Value(Plan::Build(packed.model, packed.weights, inputs, 1), "plan");
    for (std::size_t i = 0; i < plan->step_count(); ++i) {
      std::uint64_t end = 0;
      for (const auto& [offset, length] : plan->step_weights(i).ranges) end = std::max(end, offset + length);
      ends.push_back(end);
    }
    device += plan->activation_bytes() * 2 + Bytes(packed.weights.size()) * 2;
  }
  Site site(Bytes(packed.weights.size()) + MiB(64), AlignUp(device, MiB(1)));
  Subject subject(site, packed, inputs);
  for (const double link : speeds) Measure(site, subject, ends, link, rounds);
  return 0;
}

}  // namespace
}  // namespace troupe::gpu::bench

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: swap_run_bench MODEL.onnx ROUNDS LINK...\n");
    return 2;
  }
  std::vector<double> speeds;
  for (int i = 3; i < argc; ++i) speeds.push_back(std::atof(argv[i]));
  return troupe::gpu::bench::Main(argv[1], std::max(1, std::atoi(argv[2])), speeds);
}
