#include "gpu/import/cuda_check.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/coverage/coverage.hpp"
#include "gpu/engine/program_builder.hpp"

namespace troupe::gpu {
namespace {

// Stands for a kernel of the GPU in a plan that is never run.
class JudgedKernel final : public Kernel {
 public:
  absl::Status Run(std::span<const TensorView>, std::span<TensorView>, std::byte*) const override {
    return absl::InternalError("a plan that was made to judge a model was run");
  }
};

// Steps that are refused for one reason.
struct Refusal {
  std::string op;
  std::string first;  // "Gelu 'a'"
  std::string why;    // what comes behind the step's name, from ": " on
  std::size_t steps = 1;
};

class Refusals {
 public:
  void Add(const proto::Step& step, const std::string& message) {
    const std::size_t colon = std::min(message.find(": "), message.size());
    Refusal refusal{step.op(), message.substr(0, colon), message.substr(colon)};
    const auto same = std::ranges::find_if(
        all_, [&](const Refusal& one) { return one.op == refusal.op && one.why == refusal.why; });
    same == all_.end() ? all_.push_back(std::move(refusal)) : static_cast<void>(++same->steps);
  }
  [[nodiscard]] std::vector<std::string> ToLines() const {
    std::vector<std::string> lines;
    for (const Refusal& one : all_)
      lines.push_back(absl::StrCat(
          one.first, one.steps == 1 ? "" : absl::StrCat(" and ", one.steps - 1, " more"), one.why));
    return lines;
  }

 private:
  std::vector<Refusal> all_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> CudaRefusals(const proto::Model& model,
                                                      std::span<const std::byte> weights,
                                                      std::span<const proto::TensorSpec> inputs) {
  Refusals refusals;
  ProgramBuilder builder(model, weights);
  builder.MakeWith([&refusals](const Operator&, const StepContext& ctx, std::span<const ValueInfo> in,
                               std::span<const ValueInfo> out) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    const absl::Status covered = CheckCudaCovers({ctx, in, out});
    if (absl::IsUnimplemented(covered)) {
      refusals.Add(ctx.step, std::string(covered.message()));
    } else if (!covered.ok()) {
      return covered;
    }
    return std::make_unique<JudgedKernel>();
  });
  const auto program = builder.Build(inputs);
  std::vector<std::string> lines = refusals.ToLines();
  if (absl::IsUnimplemented(program.status())) {  // what the builder refuses for every device but the CPU
    lines.emplace_back(program.status().message());
  } else if (!program.ok()) {
    return program.status();
  }
  return lines;
}

}  // namespace troupe::gpu
