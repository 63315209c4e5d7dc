// An ensemble of trees by our engine and by onnxruntime, in alternating rounds. Rows change from run to run: a processor
// learns the paths of rows that it has seen a thousand times, and no client sends such.
//
// usage: trees_bench MODEL.onnx ROWS FEATURES THREADS ROUNDS LIBRARY. The model reads "x" [ROWS,FEATURES]; "y" is compared
// before anything is measured. Prints "run_us OURS ONNXRUNTIME" for each round: microseconds, the mean of its runs.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/status.hpp"
#include "bench/lines.hpp"
#include "bench/model_files.hpp"
#include "bench/onnxruntime.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/import/import_model.hpp"

namespace troupe::gpu::bench {
namespace {

constexpr int kSets = 64;
constexpr double kRoundMicroseconds = 200'000;
constexpr float kTolerance = 1e-4F;

struct AlignedDelete {
  void operator()(float* data) const { ::operator delete[](data, std::align_val_t(64)); }
};
using Buffer = std::unique_ptr<float[], AlignedDelete>;

Buffer MakeBuffer(std::size_t bytes) {
  return Buffer(
      static_cast<float*>(::operator new[](std::max<std::size_t>(bytes, 64), std::align_val_t(64))));
}

// The time now. With one thread it is the processor time of this thread, so that other programs do not count.
double Microseconds(int threads) {
  timespec now{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// The mean time of a run, of as many runs as fit into one round.
template <class Run>
double Round(int threads, Run&& run) {
  int runs = 0;
  const double begin = Microseconds(threads);
  double passed = 0;
  while (passed < kRoundMicroseconds) {
    for (std::size_t i = 0; i < kSets; ++i) run(i);
    runs += kSets;
    passed = Microseconds(threads) - begin;
  }
  return passed / runs;
}

absl::Status Compare(const float* ours, const float* theirs, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (!(std::abs(ours[i] - theirs[i]) <= kTolerance * (1 + std::abs(theirs[i]))))
      return absl::InternalError("element " + std::to_string(i) + " is " + std::to_string(ours[i]) +
                                 ", onnxruntime's is " + std::to_string(theirs[i]));
  return absl::OkStatus();
}

// A plan with memory of its own.
class Ours {
 public:
  static absl::StatusOr<Ours> Make(const std::string& path, std::int64_t rows, int threads) {
    TROUPE_ASSIGN_OR_RETURN(const ImportedModel imported, ImportOnnx(ReadFile(path), {}));
    std::vector<proto::TensorSpec> inputs = ConcreteInputs(imported.model);
    inputs[0].mutable_shape()->Set(0, rows);
    Ours ours;
    TROUPE_ASSIGN_OR_RETURN(ours.plan_, Plan::Build(imported.model, imported.weights, inputs, threads));
    ours.bindings_.inputs.push_back(nullptr);
    ours.bindings_.activations = ours.Memory(ours.plan_->activation_bytes().count());
    for (std::size_t i = 0; i < ours.plan_->outputs().size(); ++i) {
      if (ours.plan_->outputs()[i].name() == "y") ours.scores_ = i;
      ours.bindings_.outputs.push_back(ours.Memory(ours.plan_->output_bytes(i).count()));
    }
    return ours;
  }

  void Run(const float* rows) {
    bindings_.inputs[0] = reinterpret_cast<const std::byte*>(rows);
    if (const auto ran = plan_->Run(bindings_); !ran.ok()) std::cerr << ran.status() << "\n";
  }

  [[nodiscard]] std::span<const float> scores() const {
    return {reinterpret_cast<const float*>(bindings_.outputs[scores_]),
            plan_->output_bytes(scores_).count() / sizeof(float)};
  }

 private:
  std::byte* Memory(std::size_t bytes) {
    return reinterpret_cast<std::byte*>(memory_.emplace_back(MakeBuffer(bytes)).get());
  }

  std::unique_ptr<Plan> plan_;
  PlanBindings bindings_;
  std::vector<Buffer> memory_;
  std::size_t scores_ = 0;
};

std::vector<Buffer> RandomSets(std::size_t elements) {
  Random random(1);
  std::vector<Buffer> sets;
  for (int i = 0; i < kSets; ++i) {
    sets.push_back(MakeBuffer(elements * sizeof(float)));
    for (std::size_t j = 0; j < elements; ++j)
      sets.back()[j] = static_cast<float>(random.Below(1 << 20)) / static_cast<float>(1 << 20);
  }
  return sets;
}

absl::Status Measure(const std::string& path, std::int64_t rows, std::int64_t features, int threads,
                     int rounds, const std::string& library) {
  TROUPE_ASSIGN_OR_RETURN(Ours ours, Ours::Make(path, rows, threads));
  const OnnxRuntime theirs(library, path, threads);
  const auto elements = static_cast<std::size_t>(rows * features);
  const std::vector<Buffer> sets = RandomSets(elements);
  std::vector<void*> tensors;
  for (const Buffer& set : sets) tensors.push_back(theirs.Tensor({set.get(), elements}, {rows, features}));
  const std::size_t count = ours.scores().size();
  const Buffer given = MakeBuffer(count * sizeof(float));
  void* const answer = theirs.Tensor({given.get(), count}, {rows, static_cast<std::int64_t>(count) / rows});
  const auto run_ours = [&](std::size_t i) { ours.Run(sets[i].get()); };
  const auto run_theirs = [&](std::size_t i) { theirs.Run("x", tensors[i], "y", answer); };
  for (std::size_t i = 0; i < sets.size(); ++i) {
    run_ours(i);
    run_theirs(i);
    TROUPE_RETURN_IF_ERROR(Compare(ours.scores().data(), given.get(), count));
  }
  for (int round = 0; round < rounds; ++round) {
    const double time = Round(threads, run_ours);
    Say("run_us", time, Round(threads, run_theirs));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace troupe::gpu::bench

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "usage: trees_bench MODEL.onnx ROWS FEATURES THREADS ROUNDS LIBRARY\n";
    return 2;
  }
  const absl::Status status = troupe::gpu::bench::Measure(argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                                                          std::atoi(argv[4]), std::atoi(argv[5]), argv[6]);
  if (!status.ok()) std::cerr << argv[1] << ": " << status << "\n";
  return status.ok() ? 0 : 1;
}
