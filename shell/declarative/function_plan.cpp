#include "shell/declarative/function_plan.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "proto/gpu_sharing.hpp"
#include "shell/declarative/settings.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

namespace {

constexpr std::uint32_t kWhole = 100;
using Shares = std::map<std::uint64_t, std::uint32_t>;
using NumberedVersion = std::pair<const std::uint64_t, VersionManifest>;

std::string ShownDigest(const std::string& digest) {
  return Cat(kByDigest, digest.substr(0, 12));
}

// Whether any function of the cluster has the ONNX file, so that it need not be uploaded.
bool IsInCluster(const std::string& onnx_digest, const Present& present) {
  const auto& functions = present.functions.functions();
  return std::any_of(functions.begin(), functions.end(), [&](const proto::FunctionStatus& function) {
    return function.record().onnx_digest() == onnx_digest && function.record().problem().empty();
  });
}

// What one function needs.
class FunctionPlanner {
 public:
  FunctionPlanner(const FunctionManifest& function, const KnownFunction& known, const Present& present,
                  Plan& plan)
      : function_(function), known_(known), present_(present), plan_(plan) {}

  absl::Status Add() {
    const auto before = plan_.changes.size();
    TROUPE_RETURN_IF_ERROR(function_.only ? AddOnly(*function_.only) : AddVersions());
    if (plan_.changes.size() == before)
      plan_.unchanged.push_back(Cat("function ", Printable(function_.name)));
    return absl::OkStatus();
  }

 private:
  // The version that answers shall be this one: when it is not, a new version becomes it.
  absl::Status AddOnly(const VersionManifest& wish) {
    const auto answering = known_.Answering();
    if (answering == 0) return AddDeployment(wish, 1);
    const auto& record = known_.versions().at(answering);
    TROUPE_ASSIGN_OR_RETURN(auto differences, Differences(record, wish));
    if (differences.empty()) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(const bool only_sharing, OnlySharingDiffers(record, wish));
    if (only_sharing) return AddUpdate(wish, answering, std::move(differences));
    const auto shares = known_.Shares();
    if (shares.size() > 1)
      return WrongAt(
          wish.place,
          Cat("function '", Printable(function_.name), "' has a canary (", ShownShares(shares),
              "): promote it or roll it back before you change the function, or say under 'versions' "
              "which version gets how much"));
    VersionManifest next = wish;
    auto& slo = *next.settings.mutable_slo();
    if (slo.deadline_ns() == 0) slo.set_deadline_ns(record.slo().deadline_ns());
    if (slo.percentile() == 0) slo.set_percentile(record.slo().percentile());
    const auto number = known_.newest() + 1;
    TROUPE_RETURN_IF_ERROR(AddDeployment(next, number));
    auto& deployment = plan_.changes.back();
    deployment.sign = '~';
    deployment.details = std::move(differences);
    if (!shares.empty()) AddShares({{number, kWhole}}, shares, wish.place);
    return absl::OkStatus();
  }

  absl::Status AddVersions() {
    std::vector<const NumberedVersion*> missing;
    for (const NumberedVersion& version : function_.versions) {
      const auto& [number, wish] = version;
      const auto found = known_.versions().find(number);
      if (found == known_.versions().end()) {
        if (wish.model.empty())
          return WrongAt(wish.place, Cat("the cluster has no version ", number, " of function '",
                                         Printable(function_.name), "', and 'model' of it is not said"));
        missing.push_back(&version);
      } else if (!wish.model.empty()) {
        TROUPE_ASSIGN_OR_RETURN(auto differences, Differences(found->second, wish));
        TROUPE_ASSIGN_OR_RETURN(const bool only_sharing, OnlySharingDiffers(found->second, wish));
        if (!differences.empty() && only_sharing) {
          TROUPE_RETURN_IF_ERROR(AddUpdate(wish, number, std::move(differences)));
        } else if (!differences.empty()) {
          return WrongAt(wish.place,
                         Cat("version ", number, " of function '", Printable(function_.name),
                             "' is deployed, and a version does not change (",
                             absl::StrJoin(differences, "; "), "): give it the number of a new version"));
        }
      }
    }
    return AddMissing(std::move(missing));
  }

  // A new version gets no request before its weight is told: the versions that answer until then are told first.
  absl::Status AddMissing(std::vector<const NumberedVersion*> missing) {
    Shares wanted;
    for (const auto& [number, wish] : function_.versions)
      if (wish.weight.value_or(0) > 0) wanted.emplace(number, *wish.weight);
    auto shares = known_.Shares();
    const auto answering = known_.Answering();
    if (!wanted.empty() && shares.empty() && answering != 0 && !missing.empty()) {
      AddShares({{answering, kWhole}}, shares, function_.place);
      shares = {{answering, kWhole}};
    }
    // Of a new function, the version with the largest weight comes first, and gets all until the others are there.
    if (known_.versions().empty() && !wanted.empty())
      std::stable_sort(missing.begin(), missing.end(), [](const auto* a, const auto* b) {
        return a->second.weight.value_or(0) > b->second.weight.value_or(0);
      });
    for (const auto* version : missing) {
      const auto& [number, wish] = *version;
      TROUPE_RETURN_IF_ERROR(AddDeployment(wish, number));
      if (known_.versions().empty() && !wanted.empty() && shares.empty() && missing.size() > 1) {
        AddShares({{number, kWhole}}, shares, wish.place);
        shares = {{number, kWhole}};
      }
    }
    if (!wanted.empty() && wanted != shares) AddShares(wanted, shares, function_.place);
    return absl::OkStatus();
  }

  // The digest of the ONNX file that is wished for.
  absl::StatusOr<std::string> DigestOf(const VersionManifest& wish) const {
    if (!std::string_view(wish.model).starts_with(kByDigest)) return present_.digests.at(wish.model);
    const auto digest = wish.model.substr(kByDigest.size());
    const auto& functions = present_.functions.functions();
    if (std::any_of(functions.begin(), functions.end(), [&](const proto::FunctionStatus& function) {
          return function.record().onnx_digest() == digest;
        }))
      return digest;
    return WrongAt(wish.model_place, Cat("no function of the cluster has the model sha256:", digest,
                                         "; name its ONNX file instead"));
  }

  absl::StatusOr<std::vector<std::string>> Differences(const proto::FunctionRecord& record,
                                                       const VersionManifest& wish) const {
    TROUPE_ASSIGN_OR_RETURN(const auto digest, DigestOf(wish));
    auto differences = DifferencesOf(record, wish.settings);
    if (digest != record.onnx_digest())
      differences.insert(differences.begin(),
                         Cat("model: ", ShownDigest(record.onnx_digest()), " -> ", ShownDigest(digest)));
    return differences;
  }

  // Whether the version becomes what is wished for by an update, while it is served.
  absl::StatusOr<bool> OnlySharingDiffers(const proto::FunctionRecord& record,
                                          const VersionManifest& wish) const {
    auto with_its_sharing = wish;
    *with_its_sharing.settings.mutable_sharing() = record.sharing();
    TROUPE_ASSIGN_OR_RETURN(const auto differences, Differences(record, with_its_sharing));
    return differences.empty();
  }

  absl::Status AddUpdate(const VersionManifest& wish, std::uint64_t number,
                         std::vector<std::string> differences) {
    PlannedChange change;
    change.what = Cat("function ", Printable(function_.name), " version ", number);
    change.place = wish.place;
    change.details = std::move(differences);
    auto& update = *change.request.mutable_update_function();
    update.mutable_key()->set_name(function_.name);
    update.mutable_key()->set_version(Cat(number));
    *update.mutable_sharing() = wish.settings.sharing();
    for (const auto& field : proto::kSharingFields) update.add_settings(std::string(field.name));
    plan_.changes.push_back(std::move(change));
    return absl::OkStatus();
  }

  absl::Status AddDeployment(const VersionManifest& wish, std::uint64_t number) {
    TROUPE_ASSIGN_OR_RETURN(const auto digest, DigestOf(wish));
    PlannedChange change;
    change.sign = '+';
    change.what = Cat("function ", Printable(function_.name), " version ", number);
    change.place = wish.place;
    change.details = SettingLines(RecordOf(wish.settings));
    change.details.insert(change.details.begin(), Cat("model: ", ShownDigest(digest)));
    auto& deploy = *change.request.mutable_deploy();
    deploy = wish.settings;
    deploy.set_version(Cat(number));
    deploy.set_onnx_digest(digest);
    if (!std::string_view(wish.model).starts_with(kByDigest) && !IsInCluster(digest, present_))
      change.model_file = wish.model;
    plan_.changes.push_back(std::move(change));
    return absl::OkStatus();
  }

  void AddShares(const Shares& wanted, const Shares& before, const Place& place) {
    PlannedChange change;
    change.what = Cat("function ", Printable(function_.name), ", requests without a version");
    change.place = place;
    change.details = {Cat(ShownShares(before), " -> ", ShownShares(wanted))};
    change.request = SharesRequest(function_.name, wanted);
    plan_.changes.push_back(std::move(change));
  }

  const FunctionManifest& function_;
  const KnownFunction& known_;
  const Present& present_;
  Plan& plan_;
};

}  // namespace

std::map<std::uint64_t, std::uint32_t> KnownFunction::Shares() const {
  std::map<std::uint64_t, std::uint32_t> shares;
  for (const auto& [number, record] : versions_)
    if (record.share_percent() > 0) shares.emplace(number, record.share_percent());
  return shares;
}

std::uint64_t KnownFunction::Answering() const {
  const auto shares = Shares();
  for (const auto& [number, record] : versions_)
    if (record.role() == proto::VERSION_STABLE && shares.contains(number)) return number;
  if (!shares.empty())
    return std::max_element(shares.begin(), shares.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  for (auto it = versions_.rbegin(); it != versions_.rend(); ++it)
    if (it->second.loaded()) return it->first;
  return newest();
}

std::string ShownShares(const std::map<std::uint64_t, std::uint32_t>& shares) {
  if (shares.empty()) return "the newest version gets all";
  return absl::StrJoin(
      shares, ", ", [](std::string* out, const auto& one) { Append(out, one.first, ": ", one.second, "%"); });
}

proto::AdminRequest SharesRequest(const std::string& name,
                                  const std::map<std::uint64_t, std::uint32_t>& shares) {
  proto::AdminRequest request;
  auto& split = *request.mutable_split_function();
  split.set_name(name);
  auto& list = *split.mutable_shares();
  for (const auto& [number, percent] : shares) {
    auto& share = *list.add_shares();
    share.set_version(Cat(number));
    share.set_percent(percent);
  }
  return request;
}

absl::Status PlanFunction(const FunctionManifest& function, const KnownFunction& known,
                          const Present& present, Plan& plan) {
  return FunctionPlanner(function, known, present, plan).Add();
}

}  // namespace troupe::shell
