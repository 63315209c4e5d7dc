#include "gateway/shared_client.hpp"

#include "base/status.hpp"

namespace troupe::gateway {

absl::StatusOr<RegionOwner> SharedClient::Owner() const {
  if (memory_ == nullptr) {
    return absl::UnimplementedError(
        "this gateway offers no shared memory: the option http-shared-memory says to which clients it does; send "
        "the tensor's bytes in the body instead");
  }
  // A browser runs as its user, and a page that it shows must not read that user's memory.
  if (of_page_) {
    return absl::PermissionDeniedError(
        "shared memory is not for web pages: a page is not the user whose browser shows it");
  }
  if (user_ == nullptr)
    return absl::PermissionDeniedError("this gateway does not know as which user the client runs");
  TROUPE_ASSIGN_OR_RETURN(const uid_t user, user_->Get());
  return RegionOwner{key_, user};
}

}  // namespace troupe::gateway
