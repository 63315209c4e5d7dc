#include "cluster/version_shares.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "proto/function_signature.hpp"

namespace troupe::cluster {

namespace {

using Versions = FunctionTable::Versions;
constexpr std::uint32_t kAll = 100;

std::string ShownSpec(const proto::TensorSpec& spec) {
  return absl::StrCat(proto::DataType_Name(spec.type()), " [", absl::StrJoin(spec.shape(), ", "), "]");
}

// What of `tensors` another version has otherwise; empty: nothing.
std::string DifferenceOf(const char* what, const proto::TensorSpecs& stable,
                         const proto::TensorSpecs& canary) {
  std::map<std::string, std::string> expected;
  for (const auto& spec : stable) expected.emplace(spec.name(), ShownSpec(spec));
  for (const auto& spec : canary) {
    const auto found = expected.extract(spec.name());
    if (found.empty()) return absl::StrCat("the ", what, " '", spec.name(), "', which the other lacks");
    if (found.mapped() != ShownSpec(spec))
      return absl::StrCat("the ", what, " '", spec.name(), "' as ", ShownSpec(spec), " instead of ",
                          found.mapped());
  }
  if (expected.empty()) return {};
  return absl::StrCat("no ", what, " '", expected.begin()->first, "'");
}

absl::Status CheckSameSignature(const proto::FunctionRecord& stable, const proto::FunctionRecord& canary) {
  auto difference = DifferenceOf("input", proto::CallerInputs(stable), proto::CallerInputs(canary));
  if (difference.empty())
    difference = DifferenceOf("output", proto::CallerOutputs(stable), proto::CallerOutputs(canary));
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Describe(canary.key()), " has ", difference, ", and cannot share requests with version ",
                   stable.key().version(),
                   ": callers would find another signature by chance; promote it to "
                   "give it all of them"));
}

// One wish, against the versions as they are.
class Splitter {
 public:
  Splitter(const Versions& versions, const proto::SplitFunction& wish) : versions_(versions), wish_(wish) {
    for (const auto& [number, record] : versions) {
      if (record.role() == proto::VERSION_STABLE) stable_ = number;
      if (record.role() == proto::VERSION_FORMER) former_ = number;
      if (record.role() == proto::VERSION_CANARY) canaries_.push_back(number);
    }
    if (AreShared(versions)) return;
    for (const auto& [number, record] : versions)
      if (record.loaded()) answering_ = number;
  }

  absl::StatusOr<std::vector<proto::SetVersionShare>> Split() {
    using Case = proto::SplitFunction;
    switch (wish_.wish_case()) {
      case Case::kCanary:
        TROUPE_RETURN_IF_ERROR(Canary());
        break;
      case Case::kPromote:
        TROUPE_RETURN_IF_ERROR(Promote());
        break;
      case Case::kRollBack:
        TROUPE_RETURN_IF_ERROR(RollBack());
        break;
      case Case::kShares:
        TROUPE_RETURN_IF_ERROR(Exactly());
        break;
      default:
        return absl::InvalidArgumentError("the request does not say how the versions share requests");
    }
    TROUPE_RETURN_IF_ERROR(CheckSharers());
    return Commands();
  }

 private:
  absl::StatusOr<std::uint64_t> Existing(const std::string& version) const {
    const auto number = VersionNumber(version);
    if (number != 0 && versions_.contains(number)) return number;
    const auto names = absl::StrJoin(
        versions_, ", ", [](std::string* out, const auto& one) { absl::StrAppend(out, one.first); });
    return absl::NotFoundError(absl::StrCat("there is no version '", version, "' of function '", wish_.name(),
                                            "'; its versions are ", names));
  }

  absl::Status Canary() {
    TROUPE_ASSIGN_OR_RETURN(const auto canary, Existing(wish_.canary().version()));
    const auto percent = wish_.canary().percent();
    if (percent < 1 || percent >= kAll)
      return absl::InvalidArgumentError(absl::StrCat("a canary gets 1 to 99 percent of the requests, not ",
                                                     percent, "; promote it to give it all"));
    auto stable = stable_;
    if (stable == 0)
      for (const auto& [number, record] : versions_)
        if (record.loaded() && number != canary) stable = number;
    if (stable == canary)
      return absl::FailedPreconditionError(absl::StrCat("version ", canary, " of function '", wish_.name(),
                                                        "' is the stable one; name another version"));
    if (stable == 0)
      return absl::FailedPreconditionError(
          absl::StrCat("function '", wish_.name(), "' has no other version that is loaded than ", canary,
                       ", so that none can get the rest of the requests; deploy another version"));
    for (const auto other : canaries_)
      if (other != canary)
        return absl::FailedPreconditionError(
            absl::StrCat("version ", other, " of function '", wish_.name(),
                         "' is a canary already; promote it or roll it back first"));
    percents_ = {{stable, kAll - percent}, {canary, percent}};
    stable_ = stable;
    if (former_ == canary) former_ = 0;
    return absl::OkStatus();
  }

  absl::Status Promote() {
    auto promoted = canaries_.empty() ? 0 : canaries_.front();
    if (!wish_.promote().empty()) {
      TROUPE_ASSIGN_OR_RETURN(promoted, Existing(wish_.promote()));
    } else if (canaries_.size() != 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("function '", wish_.name(), "' has ", canaries_.size(),
                       " canaries; name the version that is to get all requests"));
    }
    BecomesStable(promoted);
    percents_ = {{promoted, kAll}};
    return absl::OkStatus();
  }

  absl::Status RollBack() {
    if (canaries_.empty()) {
      if (former_ == 0)
        return absl::FailedPreconditionError(
            absl::StrCat("function '", wish_.name(),
                         "' has neither a canary nor a version that was stable "
                         "before; name the version that is to get all requests and promote it"));
      stable_ = std::exchange(former_, 0);
    } else if (stable_ == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("the stable version of function '", wish_.name(),
                       "' is gone; name the version that is to get all requests and promote it"));
    }
    percents_ = {{stable_, kAll}};
    return absl::OkStatus();
  }

  absl::Status Exactly() {
    std::uint32_t sum = 0;
    for (const auto& share : wish_.shares().shares()) {
      TROUPE_ASSIGN_OR_RETURN(const auto number, Existing(share.version()));
      if (share.percent() > kAll || !percents_.emplace(number, share.percent()).second)
        return absl::InvalidArgumentError(absl::StrCat("version ", number, " of function '", wish_.name(),
                                                       "' stands twice, or gets ", share.percent(),
                                                       " percent; each version gets 0 to 100"));
      sum += share.percent();
    }
    std::erase_if(percents_, [](const auto& one) { return one.second == 0; });
    if (wish_.shares().shares().empty()) {
      stable_ = former_ = 0;
      return absl::OkStatus();
    }
    if (sum != kAll)
      return absl::InvalidArgumentError(absl::StrCat("the shares of the versions of function '", wish_.name(),
                                                     "' are ", sum, " percent together; they must be 100"));
    if (stable_ != 0 && percents_.contains(stable_)) return absl::OkStatus();
    const auto largest = std::max_element(percents_.begin(), percents_.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    BecomesStable(largest->first);
    return absl::OkStatus();
  }

  void BecomesStable(std::uint64_t number) {
    const auto before = stable_ != 0 ? stable_ : answering_;
    if (before != 0 && before != number) former_ = before;
    stable_ = number;
    if (former_ == number) former_ = 0;
  }

  // Whether each version that has a share by now can answer for the others.
  [[nodiscard]] absl::Status CheckSharers() const {
    for (const auto& [number, percent] : percents_) {
      const auto& record = versions_.at(number);
      if (!record.loaded())
        return absl::FailedPreconditionError(
            absl::StrCat(Describe(record.key()), " is unloaded; load it before it gets requests"));
      if (percents_.size() == 1) continue;
      if (!record.state().empty())
        return absl::FailedPreconditionError(
            absl::StrCat(Describe(record.key()),
                         " keeps state on its GPU, which no other version has: "
                         "requests cannot be shared; promote a version to give it all of them"));
      TROUPE_RETURN_IF_ERROR(CheckSameSignature(versions_.at(stable_), record));
    }
    return absl::OkStatus();
  }

  [[nodiscard]] proto::VersionRole RoleOf(std::uint64_t number) const {
    if (number == stable_) return proto::VERSION_STABLE;
    if (percents_.contains(number)) return proto::VERSION_CANARY;
    return number == former_ ? proto::VERSION_FORMER : proto::VERSION_PLAIN;
  }

  [[nodiscard]] std::vector<proto::SetVersionShare> Commands() const {
    std::vector<proto::SetVersionShare> commands;
    for (const auto& [number, record] : versions_) {
      proto::SetVersionShare command;
      *command.mutable_key() = record.key();
      const auto found = percents_.find(number);
      command.set_share_percent(found == percents_.end() ? 0 : found->second);
      command.set_role(RoleOf(number));
      const bool same = command.share_percent() == record.share_percent() && command.role() == record.role();
      // When nothing changes, the newest version's share is written once more.
      const bool last = commands.empty() && number == versions_.rbegin()->first;
      if (!same || last) commands.push_back(std::move(command));
    }
    return commands;
  }

  const Versions& versions_;
  const proto::SplitFunction& wish_;
  std::uint64_t stable_ = 0;  // 0: none, here and below
  std::uint64_t former_ = 0;
  std::uint64_t answering_ = 0;  // the version that answers, while they are not shared
  std::vector<std::uint64_t> canaries_;
  std::map<std::uint64_t, std::uint32_t> percents_;  // as it will be
};

}  // namespace

bool AreShared(const Versions& versions) {
  return std::any_of(versions.begin(), versions.end(),
                     [](const auto& one) { return one.second.share_percent() > 0; });
}

std::string DescribeShares(const Versions& versions) {
  std::vector<std::string> shares;
  for (const auto& [number, record] : versions)
    if (record.share_percent() > 0)
      shares.push_back(absl::StrCat("version ", number, " gets ", record.share_percent(), " %"));
  return shares.empty() ? "the newest version gets all" : absl::StrJoin(shares, ", ");
}

absl::StatusOr<std::vector<proto::SetVersionShare>> SplitVersions(const Versions& versions,
                                                                  const proto::SplitFunction& wish) {
  return Splitter(versions, wish).Split();
}

absl::Status CheckRemovable(const Versions& versions, const proto::FunctionRecord& record) {
  if (record.share_percent() == 0 || versions.size() == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      Describe(record.key()), record.role() == proto::VERSION_CANARY ? " is a canary and gets " : " gets ",
      record.share_percent(),
      " % of the requests that name no version; give them to another version first "
      "('troupe function promote ",
      record.key().name(), " --version V', or 'rollback')"));
}

}  // namespace troupe::cluster
