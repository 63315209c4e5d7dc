// KEY REGISTRY: the API keys that the cluster has, by name. What a single key has to be like is checked by
// security/api_keys before it comes here. Changed only by applying commands.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/access.pb.h"

namespace troupe::cluster {

class KeyRegistry {
 public:
  static constexpr std::size_t kMostKeys = 1000;

  // AlreadyExists for a name that is taken, ResourceExhausted for the key after the last.
  [[nodiscard]] absl::Status ValidateCreate(const std::string& name) const;
  // NotFound for a name that no key has.
  [[nodiscard]] absl::Status ValidateRevoke(const std::string& name) const;
  void Apply(const proto::CreateApiKey& command) { keys_[command.key().name()] = command.key(); }
  void Apply(const proto::RevokeApiKey& command) { keys_.erase(command.name()); }

  [[nodiscard]] const std::map<std::string, proto::ApiKeyRecord>& keys() const { return keys_; }

 private:
  std::map<std::string, proto::ApiKeyRecord> keys_;  // by name
};

}  // namespace troupe::cluster
