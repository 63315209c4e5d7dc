// EARLIER PEER: stands before an actor of another release that lacks some of the operations that are wanted of it, while the
// processes of a cluster are upgraded one after the other. A message that the actor knows goes on to it, and the actor answers the
// sender itself. A message that it does not know stays here, because a process hangs up on kinds of messages that it has never
// heard of: a question is answered with an error, and a message that waits for no answer is dropped.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_control_block.hpp>
#include <set>
#include <string>

namespace troupe::actors {

// By CAF's names of operations (system().message_types(handle)).
using OperationNames = std::set<std::string>;

// Whether both are interfaces of a manager, of a node, or of a gateway. An interface of something else is of no kind.
[[nodiscard]] bool OfOneKind(const OperationNames& one, const OperationNames& other);

// The peer itself, when it has all that is wanted of it. Else an actor that can be asked in its place, and ends with it: what is
// not offered is answered with caf::sec::unexpected_message.
[[nodiscard]] caf::strong_actor_ptr AskedForWhatItOffers(const caf::strong_actor_ptr& peer,
                                                         const OperationNames& offered,
                                                         const OperationNames& wanted);

}  // namespace troupe::actors
