#include "cluster/ownership/ownership.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/parts.hpp"
#include "proto/gpu_place.hpp"

namespace troupe::cluster {

Ownership::Seen Ownership::Look() const {
  return {.functions = parts_.catalogue.functions().revision(),
          .members = parts_.members.table().version(),
          .copies = parts_.copies.table().copies().changes()};
}

void Ownership::Start() {
  not_before_ = parts_.out.now() + parts_.settings.run_grace;
}

// Some function owns a part of a GPU of a node that has not been heard of since the start.
bool Ownership::AwaitsNodes() const {
  if (parts_.out.now() >= not_before_) return false;
  const auto& functions = parts_.catalogue.functions().table();
  return std::ranges::any_of(functions.owners(), [&](const FunctionVersion& version) {
    return std::ranges::any_of(functions.At(version).places(), [&](const proto::GpuPlace& place) {
      return parts_.members.table().Find(place.node()) == nullptr;
    });
  });
}

void Ownership::Pulse() {
  if (placing_ || planned_ == Look() || AwaitsNodes()) return;
  if (parts_.catalogue.functions().table().owners().empty()) {
    problems_.clear();
    planned_ = Look();
    return;
  }
  Placing change;
  placing_ = Validate(change).ok() && !change.commands.empty();
  if (placing_) parts_.mutations.Add(Placing());  // which is planned anew when its turn comes
}

absl::Status Ownership::Validate(Placing& change) {
  const auto& functions = parts_.catalogue.functions().table();
  auto plan = PlanOwnership(functions, parts_.members.table(), parts_.copies.table().copies());
  TellProblems(plan);
  problems_ = std::move(plan.problems);
  change.commands = std::move(plan.commands);
  planned_ = Look();
  return absl::OkStatus();
}

void Ownership::TellProblems(const OwnershipPlan& plan) {
  for (const auto& [version, why] : plan.problems) {
    const auto before = problems_.find(version);
    if (absl::IsUnavailable(why) || (before != problems_.end() && before->second == why)) continue;
    const auto function = absl::StrCat("function '", version.first, "' version ", version.second);
    parts_.out.Tell("manager", "instance-unplaced", absl::StrCat(function, ": ", why.message()));
  }
}

void Ownership::Answer(const Placing& change, const absl::Status& status) {
  placing_ = false;
  if (!status.ok()) {
    planned_.reset();
    return;
  }
  for (const auto& command : change.commands) {
    const auto owned = absl::StrJoin(
        command.places(), ", ",
        [](std::string* out, const proto::GpuPlace& place) { absl::StrAppend(out, proto::Describe(place)); });
    const auto now = owned.empty() ? std::string(" owns no part of a GPU") : absl::StrCat(" owns ", owned);
    parts_.out.Tell("manager", "instances-placed", absl::StrCat(Describe(command.key()), now));
  }
  // These commands are changes of functions themselves: they ask for no other plan.
  if (planned_) planned_->functions = parts_.catalogue.functions().revision();
}

std::string Ownership::ProblemOf(const proto::FunctionKey& key) const {
  const auto found = problems_.find(VersionOf(key));
  return found == problems_.end() ? std::string() : std::string(found->second.message());
}

}  // namespace troupe::cluster
