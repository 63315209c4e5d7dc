// SHARED CLIENT: what a request may do with the regions of shared memory at this gateway, by whose it is.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "gateway/client_user.hpp"
#include "gateway/http_message.hpp"
#include "gateway/shared_memory.hpp"

namespace troupe::gateway {

// Of one request. Copied freely; outlives the request's head.
class SharedClient {
 public:
  SharedClient() = default;  // a gateway that offers no shared memory
  // `key`: the name of the request's API key, or nothing.
  SharedClient(std::shared_ptr<SharedMemory> memory, const HttpRequestHead& head, std::string_view key)
      : memory_(std::move(memory)), user_(head.user), key_(key), of_page_(!head.origin.empty()) {}

  // Whose regions it may name. Unimplemented where none are offered; PermissionDenied for a client on another
  // machine and for a web page. Asks the kernel at the connection's first call.
  [[nodiscard]] absl::StatusOr<RegionOwner> Owner() const;
  // Only after a good Owner.
  [[nodiscard]] SharedMemory& memory() const { return *memory_; }

 private:
  std::shared_ptr<SharedMemory> memory_;
  std::shared_ptr<ClientUser> user_;
  std::string key_;
  bool of_page_ = false;
};

}  // namespace troupe::gateway
