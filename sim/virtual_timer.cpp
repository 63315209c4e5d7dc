#include "sim/virtual_timer.hpp"

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <utility>

#include "actors/core/protobuf_adapter.hpp"
#include "actors/interfaces/message_types.hpp"

namespace troupe::sim {

void VirtualTimer::At(Time when, std::function<void()> what) {
  if (!actor_) actor_ = Spawn();
  proto::Tick tick;
  tick.set_token(next_++);
  open_[tick.token()] = std::move(what);
  caf::delayed_anon_send(actor_, std::max(when - system_.Now(), Duration()), tick);
}

void VirtualTimer::End() {
  open_.clear();
  if (!actor_) return;
  caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
  actor_ = nullptr;
}

caf::actor VirtualTimer::Spawn() {
  return system_.system().spawn([this](caf::event_based_actor*) -> caf::behavior {
    return {[this](const proto::Tick& tick) {
      auto due = open_.extract(tick.token());
      if (!due.empty()) due.mapped()();
    }};
  });
}

}  // namespace troupe::sim
