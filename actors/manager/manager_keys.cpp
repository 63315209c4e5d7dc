// The cluster manager: the API keys that gateways judge requests by.
#include <memory>
#include <utility>

#include "actors/manager/cluster_manager_actor.hpp"
#include "actors/manager/mutate.hpp"
#include "security/api_keys.hpp"

namespace troupe::actors {

// The key's text is in this one answer and nowhere else.
void ClusterManager::CreateKey(AdminPromise promise, const proto::CreateKey& wish) {
  const auto text = security::NewApiKey();
  if (!text.ok()) return Deliver(promise, Failure<proto::AdminReply>(text.status()));
  auto command = std::make_shared<proto::CreateApiKey>();
  auto& key = *command->mutable_key();
  key.set_name(wish.name());
  *key.mutable_scopes() = wish.scopes();
  key.set_sha256(security::DigestOfKey(*text));
  key.set_created_unix_ns(options_.unix_now());
  Mutate<proto::CreateApiKey>(
      command,
      [this, command]() -> absl::Status {
        TROUPE_RETURN_IF_ERROR(security::CheckKey(command->key()));
        return catalogue_.keys().ValidateCreate(command->key().name());
      },
      [this, promise, command, text = *text](const absl::Status& status) mutable {
        if (!status.ok()) return Deliver(promise, Failure<proto::AdminReply>(status));
        Tell("manager", "key-created", command->key().name());
        proto::AdminReply reply;
        *reply.add_keys() = command->key();
        reply.mutable_keys(0)->clear_sha256();
        reply.set_secret(std::move(text));
        Deliver(promise, std::move(reply));
      });
}

void ClusterManager::ListKeys(AdminPromise promise) {
  proto::AdminReply reply;
  for (const auto& [name, key] : catalogue_.keys().keys()) {
    auto& listed = *reply.add_keys();
    listed = key;
    listed.clear_sha256();
  }
  Deliver(promise, std::move(reply));
}

void ClusterManager::RevokeKey(AdminPromise promise, const proto::RevokeKey& wish) {
  auto command = std::make_shared<proto::RevokeApiKey>();
  command->set_name(wish.name());
  command->set_unix_ns(options_.unix_now());
  Mutate<proto::RevokeApiKey>(
      command, [this, command] { return catalogue_.keys().ValidateRevoke(command->name()); },
      [this, promise, command](const absl::Status& status) mutable {
        if (status.ok()) Tell("manager", "key-revoked", command->name());
        Deliver(promise, Failure<proto::AdminReply>(status));
      });
}

}  // namespace troupe::actors
