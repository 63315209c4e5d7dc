// KEY CHANGES: the API keys by which gateways judge requests: made, listed, revoked.
#pragma once

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class KeyChanges {
 public:
  explicit KeyChanges(Parts& parts) : parts_(parts) {}

  void Create(Ask ask, const proto::CreateKey& wish);
  void List(Ask ask);
  void Revoke(Ask ask, const proto::RevokeKey& wish);
  // The key's text is in the answer to this and nowhere else.
  void On(KeyMade& event);

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(const CreatingKey& change) const;
  absl::Status Validate(const RevokingKey& change) const;
  void Answer(CreatingKey& change, const absl::Status& status);
  void Answer(const RevokingKey& change, const absl::Status& status);

 private:
  Parts& parts_;
};

}  // namespace troupe::cluster
