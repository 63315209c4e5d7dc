// EVENT QUEUE: the events of a machine that decides, one after the other. An effect may lead to an event at once; that one waits
// until the effects before it were carried out, so that no order overtakes an earlier one.
#pragma once

#include <deque>
#include <utility>
#include <variant>

namespace troupe::actors {

// In one actor's thread. Machine::On(Event, the clocks' times) returns the effects of the event.
template <class Machine, class Event>
class EventQueue {
 public:
  template <class... Args>
  explicit EventQueue(Args&&... args) : machine_(std::forward<Args>(args)...) {}

  [[nodiscard]] Machine& machine() { return machine_; }

  // Carries the effects of this event out, or leaves that to the call that carries out an earlier one's.
  template <class CarryOut, class... Clocks>
  void On(Event event, CarryOut carry_out, Clocks... clocks) {
    waiting_.push_back(std::move(event));
    if (waiting_.size() > 1) return;
    for (; !waiting_.empty(); waiting_.pop_front())
      for (auto& effect : machine_.On(std::move(waiting_.front()), clocks()...)) carry_out(effect);
  }

 private:
  Machine machine_;
  std::deque<Event> waiting_;  // the first one's effects are being carried out
};

// Carries one effect out: by the part that has a Do for it, or else by `rest`.
template <class Effect, class Part, class Rest>
void CarryOutBy(Part& part, Effect& effect, Rest rest) {
  std::visit(
      [&](auto& wanted) {
        if constexpr (requires { part.Do(wanted); }) {
          part.Do(wanted);
        } else {
          rest(wanted);
        }
      },
      effect);
}

}  // namespace troupe::actors
