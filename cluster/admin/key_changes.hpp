// KEY CHANGES: the API keys by which gateways judge requests: made, listed, revoked.
#pragma once

#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class KeyChanges {
 public:
  explicit KeyChanges(Parts& parts) : parts_(parts) {}

  void Create(Ask ask, const proto::CreateKey& wish);
  void List(Ask ask);
  void Revoke(Ask ask, const proto::RevokeKey& wish);
  // The key's text is in this one answer and nowhere else.
  void On(KeyMade& event);

 private:
  Parts& parts_;
};

}  // namespace troupe::cluster
