#include "proto/gpu_sharing.hpp"

#include <algorithm>

namespace troupe::proto {

namespace {

std::string OutOfRange(const SharingField& field, std::uint64_t value) {
  const auto unit = field.unit == "%" ? std::string(" %") : std::string();
  return std::string(field.name) + " is " + std::to_string(value) + unit + "; give 1 to " +
         std::to_string(field.most) + (field.unit == "%" ? " percent" : "") + ", or '" +
         std::string(field.none) + "'" +
         (field.automatic.empty() ? std::string() : ", or '" + std::string(field.automatic) + "'");
}

std::optional<SharingFault> FaultInLeft(const GpuSharing& sharing) {
  const auto& left = sharing.automatic();
  for (const auto& name : left) {
    const auto* field = FindSharingField(name);
    if (field == nullptr)
      return SharingFault{
          kSharingFields.front().name,
          "a setting is left to the manager that does not exist; there are " + SharingFieldNames()};
    if (field->automatic.empty())
      return SharingFault{field->name, std::string(field->name) +
                                           " is left to the manager, and it does not choose it; "
                                           "give a value, or '" +
                                           std::string(field->none) + "'"};
    if (std::count(left.begin(), left.end(), name) > 1)
      return SharingFault{field->name,
                          std::string(field->name) + " is left to the manager twice; name it once"};
  }
  return std::nullopt;
}

// Settings of functions that follow their load.
std::optional<SharingFault> FaultInScaling(const GpuSharing& sharing) {
  const std::uint64_t least = sharing.min_instances();
  const std::uint64_t most = sharing.max_instances();
  if (least > 0 && most > 0 && least > most)
    return SharingFault{"min_instances", "min_instances is " + std::to_string(least) + " and max_instances " +
                                             std::to_string(most) + "; give a minimum of " +
                                             std::to_string(most) + " at most, or a larger maximum"};
  for (const auto& field : kSharingFields)
    if (IsOfScaling(field) && field.get(sharing) > 0 && !IsScaled(sharing))
      return SharingFault{field.name, std::string(field.name) +
                                          " is of functions that follow their load, and the quota_request of "
                                          "this one is not 'auto'; give 'auto' for that, or '" +
                                          std::string(field.none) + "' for this"};
  return std::nullopt;
}

}  // namespace

bool IsOfScaling(const SharingField& field) {
  return field.name == "min_instances" || field.name == "target_utilisation";
}

const SharingField* FindSharingField(std::string_view name) {
  for (const auto& field : kSharingFields)
    if (field.name == name) return &field;
  return nullptr;
}

std::string SharingFieldNames() {
  std::string names;
  for (const auto& field : kSharingFields) {
    if (!names.empty()) names += ", ";
    names += field.name;
  }
  return names;
}

std::uint64_t Declared(const GpuSharing& sharing, const SharingField& field) {
  const auto& left = sharing.automatic();
  return std::find(left.begin(), left.end(), field.name) == left.end() ? field.get(sharing) : kLeftToManager;
}

void Declare(GpuSharing& sharing, const SharingField& field, std::uint64_t value) {
  auto& left = *sharing.mutable_automatic();
  const auto found = std::find(left.begin(), left.end(), field.name);
  if (value == kLeftToManager && found != left.end()) return;
  field.set(sharing, value == kLeftToManager ? 0 : value);
  if (value == kLeftToManager)
    left.Add(std::string(field.name));
  else if (found != left.end())
    left.erase(found);
}

bool IsScaled(const GpuSharing& sharing) {
  const auto& left = sharing.automatic();
  return std::find(left.begin(), left.end(), "quota_request") != left.end();
}

GpuSharing Declarations(const GpuSharing& sharing) {
  GpuSharing declared = sharing;
  for (const auto& field : kSharingFields)
    if (Declared(sharing, field) == kLeftToManager) field.set(declared, 0);
  return declared;
}

std::optional<SharingFault> FaultIn(const GpuSharing& sharing) {
  if (auto fault = FaultInLeft(sharing)) return fault;
  for (const auto& field : kSharingFields)
    if (field.get(sharing) > field.most)
      return SharingFault{field.name, OutOfRange(field, field.get(sharing))};
  if (auto fault = FaultInScaling(sharing)) return fault;
  // What the manager gave a function by its load follows the limit.
  const std::uint64_t request = IsScaled(sharing) ? 0 : sharing.quota_request();
  const std::uint64_t limit = sharing.quota_limit();
  if (limit > 0 && request > limit)
    return SharingFault{
        "quota_request",
        "quota_request is " + std::to_string(request) + " % and quota_limit " + std::to_string(limit) +
            " %, so more of a window would be promised than may be taken; give a request of " +
            std::to_string(limit) + " % at most, or a limit of " + std::to_string(request) + " % at least"};
  const std::uint64_t share = sharing.sm_partition();
  const std::uint64_t instances = sharing.max_instances();
  // Those of a function that is scaled are on several GPUs.
  if (share > 0 && instances * share > 100 && !IsScaled(sharing))
    return SharingFault{
        "max_instances",
        "max_instances is " + std::to_string(instances) + ", and so many runs of an sm_partition of " +
            std::to_string(share) + " % take " + std::to_string(instances * share) +
            " % of a GPU's SMs; give " + std::to_string(InstancesOfShare(share)) +
            " instances at most, or an sm_partition of " + std::to_string(100 / instances) + " % at most"};
  return std::nullopt;
}

}  // namespace troupe::proto
