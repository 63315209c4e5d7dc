#include "cluster/function_sharing.hpp"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/quantity.hpp"
#include "base/status.hpp"
#include "base/units.hpp"
#include "cluster/function_state.hpp"
#include "proto/gpu_instances.hpp"
#include "proto/gpu_sharing.hpp"
#include "proto/open_dimension.hpp"

namespace troupe::cluster {

namespace {

using Specs = google::protobuf::RepeatedPtrField<proto::TensorSpec>;

std::string Format(const proto::SharingField& field, std::uint64_t value) {
  return FormatQuantity(value, QuantityOf(field));
}

static_assert(kAutomatic == proto::kLeftToManager);

std::optional<std::string> ClosedDimension(const char* what, const Specs& specs) {
  for (const auto& spec : specs)
    if (!proto::LeadingIsOpen(spec))
      return absl::StrCat("its ", what, " '", spec.name(), "' has the shape [",
                          absl::StrJoin(spec.shape(), ", "), "], whose leading dimension is not open");
  return std::nullopt;
}

absl::Status ValidateMemory(const proto::FunctionRecord& record) {
  const std::uint64_t memory = record.sharing().gpu_mem();
  const std::uint64_t state = StateBytes(record).count();
  const std::uint64_t least = record.weights_bytes() + state;
  if (memory == 0 || memory >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "gpu_mem is ", FormatBytes(Bytes(memory)), " (", memory, " bytes), and the model's weights",
      state > 0 ? " and the function's state" : "", " take ", FormatBytes(Bytes(least)), " (", least,
      " bytes); give more than that, so that a run's activations have room too, or 'none'"));
}

absl::Status ValidateBatch(const proto::FunctionRecord& record) {
  if (record.sharing().max_batch() <= 1) return absl::OkStatus();
  const auto why = WhyUnbatched(record);
  if (!why) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "max_batch is ", record.sharing().max_batch(), ", and one run of ",
      record.key().name().empty() ? "the function" : absl::StrCat("function '", record.key().name(), "'"),
      " cannot answer several requests: ", *why, "; give 1 or 'auto'",
      record.state().empty() ? ", or export the model with an open leading dimension" : ""));
}

// What applies to a function that did not declare the setting.
struct Default {
  std::uint64_t value = 0;
  std::string reason;
};

Default DefaultOf(std::string_view setting, const proto::FunctionRecord& record) {
  if (setting == "sm_partition") return {100, "all SMs"};
  if (setting == "quota_request")
    return {0, "no time is promised to it; it shares the time that others leave"};
  if (setting == "quota_limit") return {100, "no limit"};
  if (setting == "gpu_mem") return {0, "no limit"};
  if (setting == "max_instances") {
    const auto share = record.sharing().sm_partition();
    if (proto::IsScaled(record.sharing())) return {kMostScaledInstances, "in the cluster, as its load asks"};
    if (proto::HasQuota(record.sharing())) return {1, "with a quota it owns one part of the GPU"};
    if (share == 0) return {0, "as many as each node runs at a time"};
    return {proto::InstancesOfShare(share), absl::StrCat("100 % / ", share, " %")};
  }
  if (setting == "min_instances") return {0, "without a load it may have none"};
  if (setting == "target_utilisation") return {kDefaultUtilisation, "what is left is for bursts"};
  if (const auto why = WhyUnbatched(record)) return {1, *why};
  return {0, "each node decides"};
}

// Of a function whose instances follow its load: their mean part of each window.
proto::AppliedSetting ScaledRequest(const proto::SharingField& field, const proto::FunctionRecord& record) {
  proto::AppliedSetting applied;
  applied.set_name(std::string(field.name));
  applied.set_value(record.sharing().quota_request());
  const bool owns = record.places_size() > 0;
  applied.set_source(owns ? proto::AppliedSetting::SCALED : proto::AppliedSetting::DEFAULT);
  applied.set_reason(owns ? absl::StrCat("by its load: ", record.places_size(),
                                         record.places_size() == 1 ? " part of a GPU" : " parts of GPUs")
                          : absl::StrCat(DefaultOf(field.name, record).reason,
                                         " (auto: its load asks for no part of a GPU)"));
  return applied;
}

proto::AppliedSetting AppliedOf(const proto::SharingField& field, const proto::FunctionRecord& record,
                                const ProfiledValues& profiled) {
  if (field.name == "quota_request" && proto::IsScaled(record.sharing())) return ScaledRequest(field, record);
  proto::AppliedSetting applied;
  applied.set_name(std::string(field.name));
  const auto value = field.get(record.sharing());
  const bool left = proto::Declared(record.sharing(), field) == proto::kLeftToManager;
  std::string said;  // by the profiles
  if (left) {
    const auto now = profiled.find(field.name);
    const bool applies = now != profiled.end() && now->second.value == value;
    said = applies ? now->second.reason : "what the profiles say now does not apply yet";
  }
  if (value > 0) {
    applied.set_value(value);
    applied.set_source(left ? proto::AppliedSetting::PROFILED : proto::AppliedSetting::DECLARED);
    applied.set_reason(std::move(said));
    return applied;
  }
  const auto otherwise = DefaultOf(field.name, record);
  applied.set_value(otherwise.value);
  applied.set_source(proto::AppliedSetting::DEFAULT);
  applied.set_reason(left
                         ? absl::StrCat(otherwise.reason, " (", std::string(field.automatic), ": ", said, ")")
                         : otherwise.reason);
  return applied;
}

// "24%"; "auto", or "auto (24%)", when it was left to the manager.
std::string DescribeSetting(const proto::SharingField& field, const proto::GpuSharing& sharing) {
  const auto declared = proto::Declared(sharing, field);
  const auto value = field.get(sharing);
  if (declared != proto::kLeftToManager || value == 0) return Format(field, declared);
  return absl::StrCat(Format(field, declared), " (", Format(field, value), ")");
}

}  // namespace

std::optional<std::string> WhyUnbatched(const proto::FunctionRecord& record) {
  if (!record.state().empty()) return "it keeps state, and a run goes on from the state of the run before it";
  if (record.inputs().empty()) return "its model has no inputs that could be joined";
  if (auto why = ClosedDimension("input", record.inputs())) return why;
  return ClosedDimension("output", record.outputs());
}

std::uint64_t MostShare(const proto::GpuSharing& sharing) {
  return 100 / std::max<std::uint64_t>(1, sharing.max_instances());
}

absl::Status ValidateScaling(const proto::FunctionRecord& record) {
  if (!proto::IsScaled(record.sharing()) || record.state().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "quota_request is 'auto', and the function keeps state: it runs where its state is, and its instances cannot follow "
      "its load; give a number of percent, or 'none'");
}

absl::Status ValidateSharing(const proto::FunctionRecord& record) {
  if (const auto fault = proto::FaultIn(record.sharing())) return absl::InvalidArgumentError(fault->why);
  TROUPE_RETURN_IF_ERROR(ValidateMemory(record));
  TROUPE_RETURN_IF_ERROR(ValidateScaling(record));
  return ValidateBatch(record);
}

absl::StatusOr<proto::GpuSharing> SharingAfter(const proto::FunctionRecord& record,
                                               const proto::UpdateFunction& wish) {
  if (wish.settings().empty())
    return absl::InvalidArgumentError(
        absl::StrCat("the update names no setting; name at least one of ", proto::SharingFieldNames()));
  auto sharing = record.sharing();
  for (const auto& name : wish.settings()) {
    const auto* field = proto::FindSharingField(name);
    if (field == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("there is no setting '", name,
                                                     "' that an update could change; ", "there are ",
                                                     proto::SharingFieldNames()));
    proto::Declare(sharing, *field, proto::Declared(wish.sharing(), *field));
  }
  // What a profile said gives way to what was declared; what it says beside that is found next.
  const auto& share = *proto::FindSharingField("sm_partition");
  if (proto::Declared(sharing, share) == proto::kLeftToManager)
    share.set(sharing, std::min(share.get(sharing), MostShare(sharing)));
  return sharing;
}

std::vector<proto::AppliedSetting> AppliedSettings(const proto::FunctionRecord& record,
                                                   const ProfiledValues& profiled) {
  std::vector<proto::AppliedSetting> settings;
  for (const auto& field : proto::kSharingFields)
    if (proto::IsScaled(record.sharing()) || !proto::IsOfScaling(field))
      settings.push_back(AppliedOf(field, record, profiled));
  return settings;
}

std::string DescribeSharing(const proto::GpuSharing& sharing) {
  std::vector<std::string> settings;
  for (const auto& field : proto::kSharingFields)
    if (proto::Declared(sharing, field) > 0)
      settings.push_back(absl::StrCat(std::string(field.name), " ", DescribeSetting(field, sharing)));
  return settings.empty() ? "no setting" : absl::StrJoin(settings, ", ");
}

std::string DescribeUpdate(const proto::UpdateFunction& wish) {
  std::vector<std::string> settings;
  for (const auto& field : proto::kSharingFields)
    if (std::find(wish.settings().begin(), wish.settings().end(), field.name) != wish.settings().end())
      settings.push_back(
          absl::StrCat(std::string(field.name), " ", Format(field, proto::Declared(wish.sharing(), field))));
  return settings.empty() ? "no setting" : absl::StrJoin(settings, ", ");
}

}  // namespace troupe::cluster
