#include "cluster/workflows/step_circles.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "cluster/workflows/step_ends.hpp"

namespace troupe::cluster {

namespace {

// Two nodes for each step: its call, and its outputs. The outputs wait for the call and for what stands in for the
// step when it fails; a step that stands in for another waits for that one's call; calls wait for outputs.
class Waits {
 public:
  explicit Waits(const proto::WorkflowSpec& spec) : spec_(spec), of_(2 * spec.steps().size()) {
    // A step whose name could not be read is not waited for.
    for (int i = 0; i < spec.steps_size(); ++i)
      if (!spec.steps(i).name().empty()) index_.emplace(spec.steps(i).name(), i);
    for (int i = 0; i < spec.steps_size(); ++i) {
      const auto& step = spec.steps(i);
      ForEachRead(step, [&](const proto::Binding& binding) { Read(Call(i), binding); });
      Add(Outputs(i), Call(i));
      if (const auto stand_in = index_.find(step.on_error().step()); stand_in != index_.end()) {
        Add(Outputs(i), Outputs(stand_in->second));
        Add(Call(stand_in->second), Call(i));
      }
      for (const auto& binding : step.on_error().values()) Read(Outputs(i), binding);
    }
  }

  // Depth first without recursion: a chain of a thousand steps must not cost a thousand frames.
  std::vector<StepCircle> Circles() {
    for (std::size_t node = 0; node < of_.size(); ++node)
      if (state_[node] == 0) Visit(node);
    return std::move(circles_);
  }

 private:
  static std::size_t Call(int step) { return 2 * static_cast<std::size_t>(step); }
  static std::size_t Outputs(int step) { return Call(step) + 1; }
  void Add(std::size_t node, std::size_t waits_for) { of_[node].push_back(waits_for); }
  void Read(std::size_t node, const proto::Binding& binding) {
    ForEachValue(binding, [&](const std::string& value) {
      const auto from = index_.find(ParseValue(value).step);
      if (from != index_.end()) Add(node, Outputs(from->second));
    });
  }

  void Visit(std::size_t first) {
    std::vector<std::pair<std::size_t, std::size_t>> path = {{first, 0}};
    state_[first] = 1;
    while (!path.empty()) {
      auto& [node, next] = path.back();
      if (next == of_[node].size()) {
        state_[node] = 2;
        path.pop_back();
        continue;
      }
      const std::size_t to = of_[node][next++];
      if (state_[to] == 1) Report(path, to);
      if (state_[to] != 0) continue;
      state_[to] = 1;
      path.emplace_back(to, 0);
    }
  }
  void Report(const std::vector<std::pair<std::size_t, std::size_t>>& path, std::size_t to) {
    auto it = std::find_if(path.begin(), path.end(), [to](const auto& at) { return at.first == to; });
    StepCircle circle;
    for (; it != path.end(); ++it) {
      if (it->first % 2 != 0) continue;
      const auto& step = spec_.steps(static_cast<int>(it->first / 2));
      if (circle.path.empty()) circle.line = step.line();
      circle.path.push_back(step.name());
    }
    if (circle.path.empty()) {  // only what stands in for what
      const auto& step = spec_.steps(static_cast<int>(to / 2));
      circle = {step.line(), {step.name()}};
    }
    circle.path.push_back(circle.path.front());
    // The path follows what is waited for; data flows the other way.
    std::reverse(circle.path.begin(), circle.path.end());
    circles_.push_back(std::move(circle));
  }

  const proto::WorkflowSpec& spec_;
  std::map<std::string, int> index_;
  std::vector<std::vector<std::size_t>> of_;
  std::vector<char> state_ = std::vector<char>(of_.size());  // 0: not seen, 1: on the path, 2: done
  std::vector<StepCircle> circles_;
};

}  // namespace

std::vector<StepCircle> StepCircles(const proto::WorkflowSpec& spec) {
  return Waits(spec).Circles();
}

}  // namespace troupe::cluster
