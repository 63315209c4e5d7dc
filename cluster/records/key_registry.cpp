#include "cluster/records/key_registry.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

absl::Status KeyRegistry::ValidateCreate(const std::string& name) const {
  if (keys_.contains(name))
    return absl::AlreadyExistsError(absl::StrCat("there is a key '", name,
                                                 "' already; revoke it first (troupe key revoke ", name,
                                                 "), or choose another name"));
  if (keys_.size() >= kMostKeys)
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", keys_.size(), " keys, and no more are kept; revoke one that is not used"));
  return absl::OkStatus();
}

absl::Status KeyRegistry::ValidateRevoke(const std::string& name) const {
  constexpr std::size_t kLongestShown = 63;
  if (keys_.contains(name)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no key '", name.substr(0, kLongestShown),
                                          "'; 'troupe key list' shows those that there are"));
}

}  // namespace troupe::cluster
