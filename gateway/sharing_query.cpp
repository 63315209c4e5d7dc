#include "gateway/sharing_query.hpp"

#include "base/quantity.hpp"
#include "base/status.hpp"
#include "gateway/text.hpp"
#include "proto/gpu_sharing.hpp"

namespace troupe::gateway {

absl::StatusOr<bool> ReadSetting(const std::string& key, const std::string& value,
                                 proto::GpuSharing& sharing) {
  const auto* field = proto::FindSharingField(key);
  if (field == nullptr) return false;
  const Quantity quantity = QuantityOf(*field);
  const auto number = ParseQuantity(value, quantity);
  if (!number)
    return absl::InvalidArgumentError(
        Cat("query parameter '", key, "' is '", value, "'; it is ", ExpectedOf(quantity)));
  proto::Declare(sharing, *field, *number);
  return true;
}

absl::StatusOr<proto::UpdateFunction> ReadUpdate(const std::string& name,
                                                 const std::map<std::string, std::string>& query) {
  proto::UpdateFunction wish;
  wish.mutable_key()->set_name(name);
  for (const auto& [key, value] : query) {
    if (key == "version") {
      wish.mutable_key()->set_version(value);
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(const bool is_setting, ReadSetting(key, value, *wish.mutable_sharing()));
    if (!is_setting)
      return absl::InvalidArgumentError(
          Cat("unknown query parameter '", key, "'; there are version, ", proto::SharingFieldNames()));
    wish.add_settings(key);
  }
  if (wish.settings().empty())
    return absl::InvalidArgumentError(
        Cat("the query names nothing to change; give at least one of ", proto::SharingFieldNames()));
  return wish;
}

}  // namespace troupe::gateway
