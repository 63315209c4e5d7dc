// The alias under which Troupe names CAF's typed actors: a later CAF changes it here, not in every interface.
#pragma once

#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include "actors/core/protobuf_adapter.hpp"

namespace troupe::actors {

template <class Request, class Reply>
using Asks = typename caf::replies_to<Request>::template with<Reply>;
template <class Message>
using Hears = caf::reacts_to<Message>;
template <class... Operations>
using Interface = caf::typed_actor<Operations...>;

}  // namespace troupe::actors
