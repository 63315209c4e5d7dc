// API KEYS: which caller may do what over HTTP. A key is a text of 'troupe_' and 256 random bits; it is shown
// once, when it is made. Only its SHA-256 is kept, so that a reader of the store, or of an update between
// daemons, cannot use the key. The manager keeps them durably
// (cluster/records/key_registry.hpp); gateways have a copy and judge requests by it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/access.pb.h"
#include "proto/key_scopes.hpp"

namespace troupe::security {

inline constexpr std::string_view kKeyPrefix = "troupe_";
// 'troupe_' and 64 hexadecimal digits.
inline constexpr std::size_t kKeyLength = kKeyPrefix.size() + 64;

// The text of a new key, from OpenSSL's generator. Internal error when there is no randomness.
[[nodiscard]] absl::StatusOr<std::string> NewApiKey();
// SHA-256 of a key's text: 32 bytes.
[[nodiscard]] std::string DigestOfKey(std::string_view text);

using proto::ScopeName;
[[nodiscard]] absl::StatusOr<proto::KeyScope> ParseScope(std::string_view text);
// Whether the key has this scope: named, or by `admin`, which includes the others.
[[nodiscard]] bool Allows(const proto::ApiKeyRecord& key, proto::KeyScope scope);

// InvalidArgument for a name, scopes or a digest that are not valid.
[[nodiscard]] absl::Status CheckKey(const proto::ApiKeyRecord& key);

// The keys by which a gateway judges. A value; not thread-safe.
class ApiKeyTable {
 public:
  void Apply(const proto::CreateApiKey& command) { keys_[command.key().name()] = command.key(); }
  void Apply(const proto::RevokeApiKey& command) { keys_.erase(command.name()); }

  // The key with this text, or null. Compares with every key, each in constant time.
  [[nodiscard]] const proto::ApiKeyRecord* Find(std::string_view text) const;
  [[nodiscard]] const std::map<std::string, proto::ApiKeyRecord>& keys() const { return keys_; }
  [[nodiscard]] bool empty() const { return keys_.empty(); }

 private:
  std::map<std::string, proto::ApiKeyRecord> keys_;  // by name
};

// The newest table that a gateway has heard of. Thread-safe.
class CurrentKeys {
 public:
  // Null before the manager has told the first table.
  [[nodiscard]] std::shared_ptr<const ApiKeyTable> Get() const {
    const std::lock_guard lock(mutex_);
    return table_;
  }
  void Set(std::shared_ptr<const ApiKeyTable> table) {
    const std::lock_guard lock(mutex_);
    table_.swap(table);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ApiKeyTable> table_;  // guarded by mutex_
};

}  // namespace troupe::security
