#include "sim/checkers/deployments.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace troupe::sim {

namespace {

using Kind = RegistryOp::Kind;
using Result = RegistryOp::Result;

bool MayHaveDeployed(const RegistryOp& op) {
  return op.kind == Kind::kDeploy && op.result != Result::kRefused;
}

}  // namespace

Deployments::Deployments(const std::string& function, const std::vector<RegistryOp>& registry,
                         const RequestRules& rules)
    : function_(function), rules_(rules) {
  for (const RegistryOp& op : registry)
    if (absl::StartsWith(op.key, absl::StrCat(function, "/"))) changes_.push_back(op);
}

std::string Deployments::StateOf(const RequestRecord& request) const {
  const auto deployment = Of(request);
  if (deployment.empty() || request.sequence.empty()) return deployment;
  return absl::StrCat(deployment, "#", request.sequence);
}

std::string Deployments::NameOf(const RegistryOp& deployment) {
  return absl::StrCat(deployment.key, " deployed at ", FormatDuration(deployment.invoked.time_since_epoch()));
}

std::string Deployments::Of(const RequestRecord& request) const {
  const auto key = absl::StrCat(request.function, "/", request.served_by);
  const auto known = KnownUntil(rules_, request);
  const RegistryOp* only = nullptr;
  for (const RegistryOp& op : changes_) {
    if (!MayHaveDeployed(op) || op.key != key || op.invoked > request.answered || EndedBy(op, known))
      continue;
    if (only != nullptr) return {};
    only = &op;
  }
  return only == nullptr ? std::string() : NameOf(*only);
}

bool Deployments::RemovedMeanwhile(const RequestRecord& request) const {
  const auto key = absl::StrCat(request.function, "/", request.served_by);
  return std::ranges::any_of(changes_, [&](const RegistryOp& op) {
    return op.kind == Kind::kRemove && op.result != Result::kRefused && op.key == key &&
           op.invoked <= request.answered && op.returned >= request.asked;
  });
}

// A version is there once: what could be deployed had none before it.
bool Deployments::EndedBy(const RegistryOp& deployment, Time by) const {
  if (deployment.result != Result::kDone) return false;
  return std::ranges::any_of(changes_, [&](const RegistryOp& op) {
    const bool ends = op.kind == Kind::kRemove || op.kind == Kind::kDeploy;
    return ends && op.result == Result::kDone && op.key == deployment.key &&
           op.invoked >= deployment.returned && op.returned <= by;
  });
}

std::int64_t Deployments::AskedOf(const std::string& state, const RequestLedger& ledger, Time by,
                                  bool refused) const {
  const std::pair<std::string, std::string> parts = absl::StrSplit(state, absl::MaxSplits('#', 1));
  const auto& deployment = parts.first;
  const auto& sequence = parts.second;
  const auto it = std::ranges::find_if(
      changes_, [&](const RegistryOp& op) { return MayHaveDeployed(op) && NameOf(op) == deployment; });
  if (it == changes_.end()) return 0;
  return std::ranges::count_if(ledger.all(), [&](const RequestRecord& request) {
    if (request.sequence != sequence) return false;
    const bool named = request.version.empty() || absl::StrCat(function_, "/", request.version) == it->key;
    const bool over = request.answers > 0 && request.answered < it->invoked;
    const bool counts = refused || !WasRefused(request);
    return Has(request) && named && !over && counts && request.asked <= by;
  });
}

}  // namespace troupe::sim
