#include "actors/gateway/view_cell.hpp"

#include <utility>

namespace troupe::actors {

ViewCell::ViewCell() {
  Show(std::make_unique<cluster::ClusterView>());
}

ViewSnapshot ViewCell::Get() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

std::size_t ViewCell::nodes() const {
  const std::lock_guard lock(mutex_);
  return nodes_;
}

void ViewCell::SetNodes(std::size_t nodes) {
  const std::lock_guard lock(mutex_);
  nodes_ = nodes;
}

std::unique_ptr<cluster::ClusterView> ViewCell::TakeSpare() {
  const std::lock_guard lock(rack_->mutex);
  return std::move(rack_->spare);
}

void ViewCell::Show(std::unique_ptr<cluster::ClusterView> view) {
  std::uint64_t number = 0;
  std::unique_ptr<cluster::ClusterView> stale;  // one whose last reader left it just now lacks two updates
  {
    const std::lock_guard lock(rack_->mutex);
    number = ++rack_->newest;
    stale.swap(rack_->spare);
  }
  // Only the one before the newest lacks no more than the last update.
  const auto leave = [rack = rack_, number](cluster::ClusterView* left) {
    std::unique_ptr<cluster::ClusterView> old(left);
    const std::lock_guard lock(rack->mutex);
    if (number + 1 == rack->newest) rack->spare.swap(old);
  };
  ViewSnapshot shown(view.release(), leave);
  const std::lock_guard lock(mutex_);
  view_.swap(shown);  // the earlier one is let go behind the lock
}

void ViewCell::SetKeys(const proto::ClusterUpdate& update) {
  auto table = std::make_shared<security::ApiKeyTable>();
  for (const auto& key : update.keys()) {
    proto::CreateApiKey command;
    *command.mutable_key() = key;
    table->Apply(command);
  }
  keys_->Set(std::move(table));
}

cluster::ViewChange ViewCell::Apply(const proto::ClusterUpdate& update) {
  const auto shown = Get();
  if (!shown->Follows(update)) return {};
  if (update.keys_listed() && (update.snapshot() || update.revision() >= shown->revision())) SetKeys(update);
  auto next = TakeSpare();
  if (next != nullptr) {
    static_cast<void>(next->Apply(last_));
  } else {
    next = std::make_unique<cluster::ClusterView>(*shown);
    ++copies_;
  }
  auto change = next->Apply(update);
  last_ = update;
  Show(std::move(next));
  return change;
}

}  // namespace troupe::actors
