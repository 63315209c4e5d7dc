#include "cluster/admin/key_changes.hpp"

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
  CreatingKey change{.ask = event.ask, .valid = event.valid, .text = *std::move(event.text)};
  *change.command.mutable_key() = std::move(event.key);
  parts_.mutations.Add(std::move(change));
}

absl::Status KeyChanges::Validate(const CreatingKey& change) const {
  TROUPE_RETURN_IF_ERROR(change.valid);
  return parts_.catalogue.keys().ValidateCreate(change.command.key().name());
}

void KeyChanges::Answer(CreatingKey& change, const absl::Status& status) {
  if (!status.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
  parts_.out.Tell("manager", "key-created", change.command.key().name());
  proto::AdminReply reply;
  *reply.add_keys() = change.command.key();
  reply.mutable_keys(0)->clear_sha256();
  reply.set_secret(std::move(change.text));
  parts_.admin.Reply(change.ask, std::move(reply));
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
  RevokingKey change{.ask = ask};
  change.command.set_name(wish.name());
  change.command.set_unix_ns(parts_.out.unix_now());
  parts_.mutations.Add(std::move(change));
}

absl::Status KeyChanges::Validate(const RevokingKey& change) const {
  return parts_.catalogue.keys().ValidateRevoke(change.command.name());
}

void KeyChanges::Answer(const RevokingKey& change, const absl::Status& status) {
  if (status.ok()) parts_.out.Tell("manager", "key-revoked", change.command.name());
  parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
}

}  // namespace troupe::cluster
