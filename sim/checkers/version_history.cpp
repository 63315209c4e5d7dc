#include "sim/checkers/version_history.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::sim {

namespace {

using Asked = VersionOp::Kind;
using Became = VersionOp::Result;

constexpr std::uint32_t kWhole = 100;

VersionParts NonZero(VersionParts parts) {
  std::erase_if(parts, [](const auto& part) { return part.second == 0; });
  return parts;
}

// `parts` of the versions that there are, and nothing of the others.
VersionParts Weighed(VersionParts versions, const VersionParts& parts) {
  for (auto& [version, percent] : versions) {
    const auto it = parts.find(version);
    percent = it == parts.end() ? 0 : it->second;
  }
  return versions;
}

std::string Name(const VersionOp& op) {
  switch (op.kind) {
    case Asked::kDeploy:
      return absl::StrCat("deploy version ", op.version);
    case Asked::kRemove:
      return absl::StrCat("remove version ", op.version);
    case Asked::kCanary:
      return absl::StrCat("canary version ", op.version, " with ", op.percent, " %");
    case Asked::kPromote:
      return op.version == 0 ? "promote the canary" : absl::StrCat("promote version ", op.version);
    case Asked::kRollBack:
      return "roll back";
    case Asked::kParts:
      return absl::StrCat("give ", DescribeParts(op.parts));
    case Asked::kFollow:
      return "follow the newest";
    case Asked::kLook:
      return "look";
  }
  return {};
}

}  // namespace

std::string DescribeParts(const VersionParts& parts) {
  return absl::StrJoin(parts, ", ", [](std::string* out, const auto& part) {
    absl::StrAppend(out, "version ", part.first, ": ", part.second, " %");
  });
}

std::string ToString(const VersionOp& op) {
  const char* result = op.result == Became::kDone      ? "done"
                       : op.result == Became::kRefused ? "refused"
                                                       : "no answer that says what became of it";
  return absl::StrCat(Name(op), " at ", FormatDuration(op.invoked.time_since_epoch()), ": ", result,
                      op.shown ? absl::StrCat(", ", DescribeParts(*op.shown)) : "");
}

VersionHistory::VersionHistory(const std::vector<VersionOp>& ops) : ops_(ops) {
  AllPossible known = {Possible()};
  phases_.push_back({Time::min(), PartsOf(known)});
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const auto& op = ops_[i];
    AllPossible under_way;
    for (auto possible : known) {
      possible.pending.insert(i);
      under_way.insert(std::move(possible));
    }
    under_way = WithPending(std::move(under_way));
    phases_.push_back({op.invoked, PartsOf(under_way)});
    if (op.result == Became::kUnknown) {
      known = std::move(under_way);
      continue;
    }
    auto after = WithPending(After(i, known));
    if (after.empty()) {
      broken_ = absl::StrCat(ToString(op), ", which does not follow from what was answered before");
      return;
    }
    known = std::move(after);
    phases_.push_back({op.returned, PartsOf(known)});
  }
}

VersionHistory::AllPossible VersionHistory::WithPending(AllPossible all) const {
  std::vector<Possible> fresh(all.begin(), all.end());
  while (!fresh.empty()) {
    const auto possible = std::move(fresh.back());
    fresh.pop_back();
    for (const auto number : possible.pending) {
      for (auto& split : Outcomes(ops_[number], possible.split)) {
        Possible next{std::move(split), possible.pending};
        next.pending.erase(number);
        if (all.insert(next).second) fresh.push_back(std::move(next));
      }
    }
  }
  return all;
}

VersionHistory::AllPossible VersionHistory::After(std::size_t number, const AllPossible& before) const {
  const auto& op = ops_[number];
  AllPossible after;
  for (const auto& possible : before) {
    auto outcomes = Outcomes(op, possible.split);
    if (op.result == Became::kRefused && outcomes.empty()) after.insert(possible);
    if (op.result == Became::kRefused) continue;
    for (auto& split : outcomes)
      if (!op.shown || *op.shown == split.weights)
        after.insert(
            {std::move(split), op.kind == Asked::kLook ? std::set<std::size_t>() : possible.pending});
  }
  return after;
}

std::vector<VersionHistory::Split> VersionHistory::Outcomes(const VersionOp& op, const Split& split) {
  switch (op.kind) {
    case Asked::kDeploy: {
      auto more = split;
      if (!more.weights.try_emplace(op.version, 0).second) return {};
      return {std::move(more)};
    }
    case Asked::kRemove:
      return Remove(op, split);
    case Asked::kCanary:
      return Canary(op, split);
    case Asked::kPromote:
      return Promote(op, split);
    case Asked::kRollBack:
      return RollBack(split);
    case Asked::kParts:
      return Parts(op, split);
    case Asked::kFollow:
      return {{Weighed(split.weights, {}), 0, 0}};
    case Asked::kLook:
      return {split};
  }
  return {};
}

// A version with a weight stays, unless it is the last one.
std::vector<VersionHistory::Split> VersionHistory::Remove(const VersionOp& op, Split split) {
  const auto it = split.weights.find(op.version);
  if (it == split.weights.end() || (it->second > 0 && split.weights.size() > 1)) return {};
  split.weights.erase(it);
  if (split.former == op.version) split.former = 0;
  return {std::move(split)};
}

// The stable version is the one that has a weight already, else the newest other version.
std::vector<VersionHistory::Split> VersionHistory::Canary(const VersionOp& op, Split split) {
  if (!split.weights.contains(op.version)) return {};
  const auto canary = CanaryOf(split);
  if (canary != 0 && canary != op.version) return {};
  if (split.stable == 0)
    for (const auto& [version, percent] : split.weights)
      if (version != op.version) split.stable = version;
  if (split.stable == 0 || split.stable == op.version) return {};
  split.weights = Weighed(split.weights, {{split.stable, kWhole - op.percent}, {op.version, op.percent}});
  if (split.former == op.version) split.former = 0;
  return {std::move(split)};
}

std::vector<VersionHistory::Split> VersionHistory::Promote(const VersionOp& op, Split split) {
  const auto version = op.version == 0 ? CanaryOf(split) : op.version;
  if (!split.weights.contains(version)) return {};
  split = WithStable(std::move(split), version);
  split.weights = Weighed(split.weights, {{version, kWhole}});
  return {std::move(split)};
}

// One step back is remembered.
std::vector<VersionHistory::Split> VersionHistory::RollBack(Split split) {
  if (CanaryOf(split) == 0) {
    if (split.former == 0) return {};
    split.stable = std::exchange(split.former, 0);
  }
  split.weights = Weighed(split.weights, {{split.stable, kWhole}});
  return {std::move(split)};
}

// A stable version without a part gives way to one that has one. What has a part is nothing to roll back to.
std::vector<VersionHistory::Split> VersionHistory::Parts(const VersionOp& op, const Split& split) {
  for (const auto& [version, percent] : op.parts)
    if (!split.weights.contains(version)) return {};
  const auto parts = NonZero(op.parts);
  std::vector<Split> outcomes;
  for (const auto& [version, percent] : parts) {
    if (parts.contains(split.stable) && version != split.stable) continue;
    outcomes.push_back(WithStable(split, version));
    outcomes.back().weights = Weighed(split.weights, parts);
    if (parts.contains(outcomes.back().former)) outcomes.back().former = 0;
  }
  return outcomes;
}

std::uint32_t VersionHistory::CanaryOf(const Split& split) {
  for (const auto& [version, percent] : split.weights)
    if (percent > 0 && version != split.stable) return version;
  return 0;
}

std::uint32_t VersionHistory::Answering(const Split& split) {
  return split.stable == 0 && !split.weights.empty() ? split.weights.rbegin()->first : split.stable;
}

VersionHistory::Split VersionHistory::WithStable(Split split, std::uint32_t version) {
  if (const auto before = Answering(split); before != version) split.former = before;
  split.stable = version;
  if (split.former == version) split.former = 0;
  return split;
}

std::set<VersionParts> VersionHistory::PartsOf(const AllPossible& all) {
  std::set<VersionParts> parts;
  for (const auto& possible : all) {
    auto of = NonZero(possible.split.weights);
    if (of.empty() && !possible.split.weights.empty()) of[possible.split.weights.rbegin()->first] = kWhole;
    parts.insert(std::move(of));
  }
  return parts;
}

std::pair<std::size_t, std::size_t> VersionHistory::Overlapping(Time from, Time to) const {
  const auto begins = [](const Phase& phase) { return phase.from; };
  const auto end = std::ranges::upper_bound(phases_, to, {}, begins) - phases_.begin();
  const auto first = std::ranges::lower_bound(phases_, from, {}, begins) - phases_.begin();
  return {first > 0 ? first - 1 : 0, end};
}

std::set<VersionParts> VersionHistory::Between(Time from, Time to) const {
  std::set<VersionParts> parts;
  const auto [first, end] = Overlapping(from, to);
  for (auto i = first; i < end; ++i) parts.insert(phases_[i].parts.begin(), phases_[i].parts.end());
  return parts;
}

std::optional<VersionHistory::Certain> VersionHistory::CertainBetween(Time from, Time to) const {
  const auto [first, end] = Overlapping(from, to);
  if (first + 1 != end || phases_[first].parts.size() != 1) return std::nullopt;
  return Certain{first, *phases_[first].parts.begin()};
}

}  // namespace troupe::sim
