#include "sim/chaos/operator_links.hpp"

#include <utility>

namespace troupe::sim {

void OperatorLinks::Connect(const std::string& name) {
  const auto& link = links_.emplace_back(std::make_shared<Link>());
  auto& directory = world_.DirectoryOf(name);
  link->watcher = world_.system().spawn([link, &directory](caf::event_based_actor* self) -> caf::behavior {
    directory.Watch("manager", self->system().message_types<actors::ClusterManagerActor>(),
                    caf::actor_cast<actors::PeerWatcherActor>(self));
    return {[link](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
              link->manager = caf::actor_cast<actors::ClusterManagerActor>(peer);
            },
            [link](const proto::PeerLost&) { link->manager = actors::ClusterManagerActor(); }};
  });
}

void OperatorLinks::Clear() {
  for (const auto& link : links_) {
    caf::anon_send_exit(link->watcher, caf::exit_reason::user_shutdown);
    link->manager = actors::ClusterManagerActor();
    link->watcher = nullptr;
  }
}

void OperatorLinks::Admin(std::size_t of, proto::AdminRequest request, Duration timeout,
                          std::function<void(AdminResult)> done) {
  const auto& link = links_[of];
  if (!link->manager) {
    agenda_.In(std::chrono::milliseconds(1), [done = std::move(done)] { done({}); });
    return;
  }
  world_.system().spawn([this, manager = link->manager, request = std::move(request), timeout,
                         done = std::move(done)](caf::event_based_actor* self) {
    self->request(manager, timeout, request)
        .then(
            [this, done, list = request.has_list_functions()](proto::AdminReply& reply) {
              if (list) Hide(reply);
              done({true, std::move(reply)});
            },
            [done](const caf::error&) {
              done({true, std::nullopt});
            });
  });
}

void OperatorLinks::Hide(proto::AdminReply& reply) {
  auto& functions = *reply.mutable_functions();
  if (hides_ && !functions.empty()) {
    hides_ = false;
    functions.RemoveLast();
  }
  for (int i = functions.size(); hides_stage_ && i-- > 0;) {
    if (functions[i].record().stage().count() == 0) continue;
    hides_stage_ = false;
    functions.DeleteSubrange(i, 1);
  }
}

}  // namespace troupe::sim
