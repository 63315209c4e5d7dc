#include "proto/gpu_sharing.hpp"

namespace troupe::proto {

namespace {

std::string OutOfRange(const SharingField& field, std::uint64_t value) {
  const auto unit = field.unit == "%" ? std::string(" %") : std::string();
  return std::string(field.name) + " is " + std::to_string(value) + unit + "; give 1 to " +
         std::to_string(field.most) + (field.unit == "%" ? " percent" : "") + ", or '" +
         std::string(field.none) + "'";
}

}  // namespace

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

std::optional<SharingFault> FaultIn(const GpuSharing& sharing) {
  for (const auto& field : kSharingFields)
    if (field.get(sharing) > field.most)
      return SharingFault{field.name, OutOfRange(field, field.get(sharing))};
  const std::uint64_t request = sharing.quota_request();
  const std::uint64_t limit = sharing.quota_limit();
  if (limit > 0 && request > limit)
    return SharingFault{
        "quota_request",
        "quota_request is " + std::to_string(request) + " % and quota_limit " + std::to_string(limit) +
            " %, so more of a window would be promised than may be taken; give a request of " +
            std::to_string(limit) + " % at most, or a limit of " + std::to_string(request) + " % at least"};
  const std::uint64_t share = sharing.sm_partition();
  const std::uint64_t instances = sharing.max_instances();
  if (share > 0 && instances * share > 100)
    return SharingFault{
        "max_instances",
        "max_instances is " + std::to_string(instances) + ", and so many runs of an sm_partition of " +
            std::to_string(share) + " % take " + std::to_string(instances * share) +
            " % of a GPU's SMs; give " + std::to_string(InstancesOfShare(share)) +
            " instances at most, or an sm_partition of " + std::to_string(100 / instances) + " % at most"};
  return std::nullopt;
}

}  // namespace troupe::proto
