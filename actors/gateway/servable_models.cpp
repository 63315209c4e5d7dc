#include "actors/gateway/servable_models.hpp"

namespace troupe::actors {

void ServableModels::Publish(const cluster::CreditTable& credits, const std::vector<std::string>& models) {
  const std::lock_guard lock(mutex_);
  for (const auto& model : models)
    credits.Servable(model) ? static_cast<void>(models_.insert(model))
                            : static_cast<void>(models_.erase(model));
}

bool ServableModels::Has(const std::string& digest) const {
  const std::lock_guard lock(mutex_);
  return models_.contains(digest);
}

bool ServableModels::Settle(bool all_servable, Time now) {
  const std::lock_guard lock(mutex_);
  if (!first_node_) first_node_ = now;
  if (all_servable || now - *first_node_ >= kSettleTime) settled_ = true;
  return settled_;
}

std::vector<std::string> ModelsOf(const cluster::CreditTable& credits, const std::string& node) {
  const auto* known = credits.Find(node);
  if (known == nullptr) return {};
  return {known->adopted.begin(), known->adopted.end()};
}

std::vector<std::string> ModelsTouchedBy(const cluster::CreditTable& credits,
                                         const proto::CreditGrant& grant) {
  auto models = credits.ComeOrGo(grant);
  const auto* known = credits.Find(grant.node());
  if (known != nullptr && known->draining != grant.draining())
    models.insert(models.end(), known->adopted.begin(), known->adopted.end());
  return models;
}

}  // namespace troupe::actors
