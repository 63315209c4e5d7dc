#include "sim/trace_workflows.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::sim {
namespace {

constexpr std::uint32_t kMostSteps = 64;  // functions that come after each other in a circle have no end

class Writer {
 public:
  Writer(const std::vector<TraceFunction>& functions, const StepTerms& terms, const std::string& name)
      : functions_(functions),
        terms_(absl::StrCat(
            "timeout: ", std::chrono::duration_cast<std::chrono::milliseconds>(terms.timeout).count(),
            "ms, durable: ", terms.written ? "bytes" : "lineage")),
        yaml_(absl::StrCat("name: ", name, "\ninputs:\n  x: {type: FP32, shape: [-1, 4]}\nsteps:\n")) {}

  std::string Write(std::uint32_t first) {
    Step(first, "x", 1);
    return absl::StrCat(yaml_, "outputs:\n", outputs_);
  }
  [[nodiscard]] std::uint32_t depth() const { return depth_; }

 private:
  void Step(std::uint32_t function, const std::string& input, std::uint32_t level) {
    depth_ = std::max(depth_, level);
    const std::string step = absl::StrCat("s", ++steps_);
    TROUPE_CHECK(steps_ <= kMostSteps, "a workload's workflow has too many steps");
    absl::StrAppend(&yaml_, "  - {name: ", step, ", function: ", functions_[function].name,
                    ", inputs: {x: ", input, "}, ", terms_, "}\n");
    const std::string output = absl::StrCat(step, ".out_x");
    if (functions_[function].then.empty()) absl::StrAppend(&outputs_, "  ", step, ": ", output, "\n");
    for (const std::uint32_t next : functions_[function].then) Step(next, output, level + 1);
  }

  const std::vector<TraceFunction>& functions_;
  const std::string terms_;
  std::string yaml_;
  std::string outputs_;
  std::uint32_t steps_ = 0, depth_ = 0;
};

}  // namespace

const TraceWorkflow* TraceWorkflows::BegunBy(std::uint32_t function) const {
  const auto found = std::ranges::find(all, function, &TraceWorkflow::first);
  return found == all.end() ? nullptr : &*found;
}

TraceWorkflows WorkflowsOf(const std::vector<TraceFunction>& functions, const StepTerms& terms) {
  TraceWorkflows workflows;
  workflows.bytes_read.resize(functions.size());
  for (std::uint32_t i = 0; i < functions.size(); ++i) {
    if (functions[i].then.empty()) continue;
    const std::string name = absl::StrCat(functions[i].name, "-workflow");
    Writer writer(functions, terms, name);
    const std::string yaml = writer.Write(i);
    workflows.all.push_back({.first = i, .name = name, .yaml = yaml, .depth = writer.depth()});
    for (const std::uint32_t next : functions[i].then) {
      Bytes& read = workflows.bytes_read[next];
      read = std::max(read, functions[i].passes);
    }
  }
  return workflows;
}

}  // namespace troupe::sim
