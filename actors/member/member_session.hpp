// How an actor reaches the member that speaks for it: it learns the member's handle from the member's
// questions. Owned by that actor.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <cstdint>
#include <utility>

#include "actors/interfaces/member.hpp"

namespace troupe::actors {

class MemberSession {
 public:
  // The sender of a DescribeMember that is joining: others ask as well, to look on.
  void AskedBy(const caf::strong_actor_ptr& member) { member_ = caf::actor_cast<caf::actor_addr>(member); }
  // What was told since `known` has not all come: it is asked for, and comes as an update. Nothing happens
  // before the member's first question; the join that follows brings everything.
  template <class Self>
  void AskSince(Self* self, std::uint64_t known) {
    const auto member = caf::actor_cast<caf::strong_actor_ptr>(member_);
    if (member == nullptr) return;
    proto::JoinRequest ask;
    ask.set_known_revision(known);
    self->send(caf::actor_cast<MemberActor>(member), std::move(ask));
  }

 private:
  caf::actor_addr member_;  // weak: the member holds us
};

}  // namespace troupe::actors
