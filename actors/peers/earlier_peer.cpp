#include "actors/peers/earlier_peer.hpp"

#include <algorithm>
#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "actors/peers/peer_kinds.hpp"

namespace troupe::actors {
namespace {

class EarlierPeer : public caf::event_based_actor {
 public:
  EarlierPeer(caf::actor_config& config, caf::strong_actor_ptr peer, OperationNames offered)
      : caf::event_based_actor(config), peer_(std::move(peer)), offered_(std::move(offered)) {
    set_default_handler(
        [this](caf::scheduled_actor*, caf::message_view& message) { return Forward(message); });
    set_down_handler([this](const caf::down_msg& down) { quit(down.reason); });
  }

  caf::behavior make_behavior() override {
    monitor(caf::actor_cast<caf::actor>(peer_));
    return {[](caf::tick_atom) {}};  // an actor with nothing that it handles itself would end
  }
  void on_exit() override { peer_ = nullptr; }

 private:
  caf::result<caf::message> Forward(caf::message_view& view) {
    const auto* const element = current_mailbox_element();
    if (!Knows(view.content())) {
      // CAF sends the error of a message that waits for no answer to the message's sender, whom an error ends.
      if (element->mid.is_async()) return caf::delegated<caf::message>();
      return caf::sec::unexpected_message;
    }
    peer_->enqueue(element->sender, element->mid, view.move_content_to_message(), context());
    return caf::delegated<caf::message>();
  }

  [[nodiscard]] bool Knows(const caf::type_erased_tuple& content) const {
    std::string asked = "caf::replies_to<";
    for (std::size_t i = 0; i < content.size(); ++i)
      absl::StrAppend(&asked, i == 0 ? "" : ",", home_system().types().portable_name(content.type(i)));
    absl::StrAppend(&asked, ">::with<");
    const auto at = offered_.lower_bound(asked);
    return at != offered_.end() && absl::StartsWith(*at, asked);
  }

  caf::strong_actor_ptr peer_;
  const OperationNames offered_;
};

}  // namespace

bool OfOneKind(const OperationNames& one, const OperationNames& other) {
  return std::ranges::any_of(
      kPeerKinds, [&](const PeerKind& kind) { return Takes(one, kind.mark) && Takes(other, kind.mark); });
}

caf::strong_actor_ptr AskedForWhatItOffers(const caf::strong_actor_ptr& peer, const OperationNames& offered,
                                           const OperationNames& wanted) {
  if (std::ranges::includes(offered, wanted)) return peer;
  return caf::actor_cast<caf::strong_actor_ptr>(peer->home_system->spawn<EarlierPeer>(peer, offered));
}

}  // namespace troupe::actors
