#include "cluster/admin/key_changes.hpp"

#include <memory>
#include <utility>

#include "base/status.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void KeyChanges::Create(Ask ask, const proto::CreateKey& wish) {
  proto::ApiKeyRecord key;
  key.set_name(wish.name());
  *key.mutable_scopes() = wish.scopes();
  key.set_created_unix_ns(parts_.out.unix_now());
  parts_.out.Add(MakeKey{ask, std::move(key)});
}

void KeyChanges::On(KeyMade& event) {
  if (!event.text.ok()) return parts_.admin.Reply(event.ask, Failure<proto::AdminReply>(event.text.status()));
  auto command = std::make_shared<proto::CreateApiKey>();
  *command->mutable_key() = std::move(event.key);
  parts_.Mutate<proto::CreateApiKey>(
      command,
      [this, command, valid = event.valid]() -> absl::Status {
        TROUPE_RETURN_IF_ERROR(valid);
        return parts_.catalogue.keys().ValidateCreate(command->key().name());
      },
      [this, ask = event.ask, command, text = *event.text](const absl::Status& status) {
        if (!status.ok()) return parts_.admin.Reply(ask, Failure<proto::AdminReply>(status));
        parts_.out.Tell("manager", "key-created", command->key().name());
        proto::AdminReply reply;
        *reply.add_keys() = command->key();
        reply.mutable_keys(0)->clear_sha256();
        reply.set_secret(text);
        parts_.admin.Reply(ask, std::move(reply));
      });
}

void KeyChanges::List(Ask ask) {
  proto::AdminReply reply;
  for (const auto& [name, key] : parts_.catalogue.keys().keys()) {
    auto& listed = *reply.add_keys();
    listed = key;
    listed.clear_sha256();
  }
  parts_.admin.Reply(ask, std::move(reply));
}

void KeyChanges::Revoke(Ask ask, const proto::RevokeKey& wish) {
  auto command = std::make_shared<proto::RevokeApiKey>();
  command->set_name(wish.name());
  command->set_unix_ns(parts_.out.unix_now());
  parts_.Mutate<proto::RevokeApiKey>(
      command, [this, command] { return parts_.catalogue.keys().ValidateRevoke(command->name()); },
      [this, ask, command](const absl::Status& status) {
        if (status.ok()) parts_.out.Tell("manager", "key-revoked", command->name());
        parts_.admin.Reply(ask, Failure<proto::AdminReply>(status));
      });
}

}  // namespace troupe::cluster
