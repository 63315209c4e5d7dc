// EARLIER PEER: stands before an actor of another release that lacks some of the operations that are wanted of it, while the
// processes of a cluster are upgraded one after the other. What the actor knows goes on to it, and its answers come from itself;
// what it does not know ends here, since a process that gets a message of a kind that it has never heard of hangs up: a question
// gets an error, and what is only told is dropped.

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
