#include "node/membership.hpp"

#include <algorithm>
#include <utility>

#include "node/parts.hpp"

namespace troupe::node {

void Membership::Learn(const proto::ClusterUpdate& update) {
  const auto known = view_.revision();
  const auto change = view_.Apply(update);
  if (!change.applied) return parts_.out.Add(AskSince{known});
  for (const auto* keys : {&change.deployed, &change.removed})
    for (const auto& key : *keys) parts_.states.Learn(key);
  parts_.model_profiles.Learn(update);
  LearnPlaces(change);
}

void Membership::LearnPlaces(const cluster::ViewChange& change) {
  std::set<std::string> names;
  for (const auto* keys : {&change.deployed, &change.removed})
    for (const auto& key : *keys) names.insert(key.name());
  bool changed = false;
  for (const auto& name : names) {
    auto parts = PartsOf(name);
    if (!parts.empty()) {
      owners_.insert(name);
    } else if (owners_.erase(name) == 0) {
      continue;
    }
    parts_.scheduler.SetOwned(parts_.names.Function(name), std::move(parts));
    changed = true;
  }
  if (changed) parts_.decisions.Decide();
}

void Membership::DescribeOwned(proto::NodeDescription& node) const {
  for (const auto& name : owners_) {
    for (const auto& part : PartsOf(name)) {
      auto& owned = *node.add_owned();
      owned.set_function(name);
      owned.set_gpu(part.device);
      const auto* obeyed = parts_.scheduler.OwnedOn(parts_.names.Function(name), part.model, part.device);
      owned.set_instances(obeyed == nullptr ? 0 : obeyed->instances);
    }
  }
}

// What the function's versions own of this node's GPUs.
std::vector<OwnedGpus::Part> Membership::PartsOf(const std::string& name) const {
  std::vector<OwnedGpus::Part> parts;
  const auto* versions = view_.functions().VersionsOf(name);
  if (versions == nullptr) return parts;
  for (const auto& [number, record] : *versions) {
    for (const auto& place : record.places()) {
      if (!record.loaded() || place.node() != parts_.settings.name ||
          place.gpu() >= parts_.settings.gpus.size())
        continue;
      const auto model = parts_.models.CopyOf(record);
      const auto known = std::ranges::find_if(parts, [&](const OwnedGpus::Part& part) {
        return part.model == model && part.device == place.gpu();
      });
      auto& part = known == parts.end() ? parts.emplace_back(OwnedGpus::Part{model, place.gpu()}) : *known;
      ++part.instances;
      part.quotas += place.quota();
      part.area += place.quota() * place.sms();
    }
  }
  return parts;
}

void Membership::Assume(const proto::ClusterUpdate& known) {
  auto update = known;
  update.set_snapshot(true);
  update.set_revision(0);
  static_cast<void>(view_.Apply(update));
}

void Membership::On(const ClusterChanged& event) {
  Learn(event.update);
  parts_.remembered.SaveSoon();
}

void Membership::On(const Joined& event) {
  Learn(event.state);
  epoch_ = event.epoch;
  if (first_epoch_ == 0) first_epoch_ = event.epoch;
}

void Membership::On(const DrainAsked& event) {
  parts_.scheduler.SetDraining(event.drain);
  parts_.routers.UpdateCapacity();
  parts_.out.Add(Answer<proto::DrainReply>{event.ask, {}});
}

void Membership::On(const ReportAsked& event) {
  auto report = Report(event.wish);
  parts_.out.Add(Answer<proto::MemberReport>{event.ask, std::move(report)});
}

proto::MemberReport Membership::Report(const proto::DescribeMember& wish) {
  proto::MemberReport report;
  for (std::uint32_t device = 0; device < parts_.settings.gpus.size(); ++device) {
    auto& record = *report.add_gpus();
    record = parts_.runtimes.Record(device);
    // A model has the memory of one runtime at most, and the manager places models by this figure.
    record.set_memory_bytes(record.memory_bytes() / parts_.settings.isolation.runtimes);
  }
  *report.mutable_load() = Load();
  if (!wish.joining()) {
    parts_.metering.Report(wish.usage_stored(), report);
    *report.mutable_demand() = parts_.requests.demand().Take();
    *report.mutable_function_demand() = parts_.requests.scaled_runs().Take();
    for (auto& event : parts_.out.journal().After(wish.events_heard(), parts_.out.now()))
      *report.add_events() = std::move(event);
    return report;
  }
  std::set<std::string> adopted;
  parts_.models.held().ForEach([&](const ModelNumber& copy, const HeldModel& model) {
    // The manager says anew whether this node is the home of what has copies elsewhere, and where.
    if (model.adopted && !parts_.replication.IsReplicated(copy->digest.text()))
      adopted.insert(copy->digest.text());
  });
  for (const auto& digest : adopted) report.add_adopted(digest);
  told_ = std::move(adopted);
  return report;
}

proto::NodeLoad Membership::Load() const {
  const auto& scheduler = parts_.scheduler;
  const auto& counts = scheduler.counts();
  proto::NodeLoad load;
  load.set_queued(scheduler.waiting() + parts_.requests.awaiting_inputs());
  // A trial does not belong to any router, so it is left out. It hardly ever waits.
  load.set_running(scheduler.in_flight() - std::min(scheduler.in_flight(), scheduler.trials()));
  load.set_served(counts.served);
  load.set_failed(counts.failed);
  load.set_swaps(counts.swaps);
  load.set_hits(counts.hits);
  load.set_retried(counts.retried);
  load.set_busy_share(parts_.view.BusyShare(parts_.out.now()));
  return load;
}

}  // namespace troupe::node
