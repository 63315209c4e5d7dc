#include "cluster/workflows/nesting.hpp"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace troupe::cluster {

namespace {

std::uint64_t NumberOf(const std::string& version) {
  std::uint64_t number = 0;
  return absl::SimpleAtoi(version, &number) ? number : 0;
}

}  // namespace

std::string Nesting::Path(const proto::WorkflowSpec& last) const {
  std::string text;
  for (const auto* workflow : path_) absl::StrAppend(&text, workflow->name(), " -> ");
  return absl::StrCat(text, last.name());
}

// The path is never longer than the limit, so the recursion is bounded.
std::size_t Nesting::DepthOf(const proto::WorkflowSpec& workflow) {
  if (std::find(path_.begin(), path_.end(), &workflow) != path_.end()) {
    wrong_ = absl::StrCat("the workflows call each other: ", Path(workflow));
    return 0;
  }
  const auto known = depths_.find(&workflow);
  if (path_.size() + (known == depths_.end() ? 1 : known->second) > kDeepest) {
    wrong_ = absl::StrCat("workflows inside each other are supported ", kDeepest,
                          " deep, and this is deeper: ", Path(workflow));
    return 0;
  }
  if (known != depths_.end()) return known->second;
  path_.push_back(&workflow);
  std::size_t deepest = 0;
  for (const auto& step : workflow.steps()) {
    if (step.workflow().empty()) continue;
    const auto* called = find_(step.workflow(), step.version());
    if (called == nullptr) continue;  // told elsewhere, or when it is called
    const std::size_t depth = DepthOf(called->spec());
    if (depth == 0) break;
    deepest = std::max(deepest, depth);
  }
  path_.pop_back();
  if (!wrong_.empty()) return 0;
  return depths_[&workflow] = deepest + 1;
}

std::string Nesting::WrongWith(const proto::WorkflowSpec& caller, const proto::WorkflowSpec& called) {
  wrong_.clear();
  path_ = {&caller};
  DepthOf(called);
  path_.clear();
  return wrong_;
}

std::string Nesting::WrongWith(const proto::WorkflowSpec& workflow) {
  wrong_.clear();
  path_.clear();
  DepthOf(workflow);
  path_.clear();
  return wrong_;
}

FindWorkflow FindWith(FindWorkflow find, const proto::WorkflowRecord& added) {
  return [find = std::move(find), &added](const std::string& name,
                                          const std::string& version) -> const proto::WorkflowRecord* {
    const auto* known = find(name, version);
    if (name != added.spec().name()) return known;
    const auto* newest = find(name, "");
    const std::uint64_t last = newest == nullptr ? 0 : NumberOf(newest->spec().version());
    const std::uint64_t own = added.spec().version().empty() ? last + 1 : NumberOf(added.spec().version());
    const bool asked = version.empty() ? own > last : own == NumberOf(version);
    return asked ? &added : known;
  };
}

}  // namespace troupe::cluster
