#include "cluster/copies/copies.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/exclusive_lease.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

namespace {
constexpr std::size_t kPlaces = 8;  // that a node is told of: no pull needs more
// Of smaller models a node that has them sends few ranges, and each node in a chain adds the time of one.
constexpr std::uint64_t kRelayedFrom = 16u << 20;

// The function for which a node is to have the model: one with state, if there is any, makes the node the home of the states.
const proto::FunctionRecord* AdoptedFor(const FunctionTable& functions, const std::string& digest) {
  const proto::FunctionRecord* loaded = nullptr;
  const auto use = functions.models().find(digest);
  if (use == functions.models().end()) return nullptr;
  for (const auto& version : use->second.functions) {
    const auto& record = functions.At(version);
    if (!record.loaded()) continue;
    if (!record.state().empty()) return &record;
    if (loaded == nullptr) loaded = &record;
  }
  return loaded == nullptr ? functions.UserOf(digest) : loaded;
}

void AddPlace(const Member& member, proto::ModelPlaces& reply) {
  auto& place = *reply.add_places();
  place.set_node(member.record.name());
  place.set_address(member.record.address());
}
}  // namespace

Copies::Copies(Parts& parts)
    : parts_(parts),
      table_(parts.settings.replicas, parts.settings.placement_retry,
             ExclusiveLease(parts.settings.member_lease), parts.settings.replica_policy) {}

void Copies::Start() {
  PlacementTable::Homes homes;
  for (const auto& [digest, home] : parts_.catalogue.homes().by_model) homes[digest] = home.nodes(0);
  table_.SetHomes(std::move(homes));
  parts_.state_replicas.Start();
}

void Copies::Asked(const proto::ModelDemand& demand) {
  table_.Asked(demand.model_digest(), demand.requests(), Duration(demand.gpu_ns()), parts_.out.now());
}

void Copies::Place() {
  parts_.state_moves.Pulse();
  parts_.state_replicas.Pulse();
  const auto moves =
      table_.Plan(parts_.catalogue.functions().table(), parts_.members.table(), parts_.out.now());
  const auto homes = KeepHomes();
  TellUnreachable();
  TellDemanded();
  for (const auto& move : moves) {
    if (!parts_.members.HasNode(move.node)) continue;
    if (move.adopt) {
      if (!homes.contains(move.digest)) Adopt(move.digest, move.node);
    } else {
      parts_.out.Add(TellDisowned{move.node, move.digest});
      Disown(move.digest, move.node);
    }
  }
  TellHomes();
}

void Copies::TellHomes() {
  const auto& models = parts_.catalogue.functions().table().models();
  for (const auto& [digest, node] : table_.homes().all()) {
    const auto use = models.find(digest);
    const auto told = told_homes_.find(digest);
    if (use == models.end() || use->second.loaded_with_state == 0) {
      if (told != told_homes_.end()) told_homes_.erase(told);
      continue;
    }
    const bool waits = storing_homes_.contains(digest) || table_.homes().MustWait(digest) ||
                       table_.copies().MustWait(digest, node, parts_.out.now());
    const bool knows = told != told_homes_.end() && told->second == node;
    if (!waits && !knows && parts_.members.HasNode(node) && Holds(node, digest)) Adopt(digest, node);
  }
}

bool Copies::Holds(const std::string& node, const std::string& digest) const {
  const auto holders = table_.copies().HoldersOf(digest);
  return std::ranges::find(holders, node) != holders.end();
}

PlacementTable::Homes Copies::KeepHomes() {
  const auto homes = table_.TakeNewHomes();
  for (const auto& [digest, node] : homes) {
    storing_homes_.insert(digest);
    parts_.commits.Add(HomeChanges(digest, node, parts_.state_replicas.FirstTerm(digest)),
                       HomeStored{digest, node});
  }
  const auto old = table_.TakeOldHomes();
  if (!old.empty()) parts_.commits.Add(NoHomeChanges(old, parts_.state_replicas.last_term()));
  return homes;
}

void Copies::On(const HomeStored& stored, const absl::Status& status) {
  const auto& digest = stored.digest;
  const auto& node = stored.node;
  storing_homes_.erase(digest);
  if (!status.ok()) {
    table_.Unbind(digest);
    table_.AdoptFailed(digest, node, parts_.out.now());
    return AdoptionEnded(digest, absl::UnavailableError(absl::StrCat(
                                     "node '", node, "' was to keep its state, and that could not be ",
                                     "stored (", status.message(), "): it is tried again by itself")));
  }
  if (parts_.members.HasNode(node) && (table_.copies().IsAsked(digest, node) || Holds(node, digest)))
    return Adopt(digest, node);
  AdoptionEnded(digest, absl::UnavailableError(absl::StrCat(
                            "node '", node, "', which is to keep its state, was lost before it ",
                            "was asked to adopt the model: it is served when the node is back")));
}

void Copies::TellDemanded() {
  for (const auto& digest : table_.demanded().changed()) {
    const auto* record = parts_.catalogue.functions().table().UserOf(digest);
    if (record == nullptr) continue;
    const auto copies = std::max(table_.demanded().Of(digest), parts_.settings.replicas);
    parts_.out.Tell("manager", "copies-wanted",
                    absl::StrCat("function '", record->key().name(), "': its load needs host copies on ",
                                 copies, copies == 1 ? " node" : " nodes"));
  }
}

void Copies::TellUnreachable() {
  std::set<std::string> now;
  for (const auto& [digest, why] : table_.problems()) {
    if (!table_.HasHome(digest) || !absl::IsUnavailable(why)) continue;
    if (parts_.members.Awaits(table_.homes().Of(digest))) continue;
    now.insert(digest);
    if (!unreachable_.contains(digest))
      parts_.out.Tell("manager", "state-unreachable", std::string(why.message()));
  }
  unreachable_ = std::move(now);
}

void Copies::Adopt(const std::string& digest, const std::string& node) {
  const auto* record = AdoptedFor(parts_.catalogue.functions().table(), digest);
  if (record == nullptr) {
    Disown(digest, node);
    return AdoptionEnded(digest,
                         absl::UnavailableError("its function was removed before a node had adopted it"));
  }
  const auto* member = parts_.members.table().Find(node);
  const auto epoch = member == nullptr ? 0 : member->record.epoch();
  if (!record->state().empty()) told_homes_[digest] = node;
  parts_.out.Add(AskAdoption{digest, node, epoch, *record, parts_.state_replicas.NamedFor(digest, node)});
}

void Copies::On(const AdoptionAnswered& event) {
  const auto& digest = event.digest;
  const auto& node = event.node;
  // What a life that is over answers says nothing of the node's next one, nor that the node is there.
  if (!parts_.members.table().CheckEpoch(node, event.epoch).ok()) return AdoptionLost(digest, node);
  relays_.Over(digest, node);
  if (event.status.ok()) {
    table_.Adopted(digest, node);
    parts_.out.Tell(node, "model-adopted", absl::StrCat("function '", event.function, "'"));
  } else {
    if (const auto told = told_homes_.find(digest); told != told_homes_.end() && told->second == node)
      told_homes_.erase(told);
    table_.AdoptFailed(digest, node, parts_.out.now());
    parts_.out.Tell(node, "adoption-failed",
                    absl::StrCat("function '", event.function, "': ", event.status.message()));
  }
  AdoptionEnded(digest, event.status);
}

void Copies::On(const PlacesAsked& event) {
  proto::ModelPlaces reply;
  const auto holders = HoldersFor(event);
  if (const auto* relay = RelayFor(event, holders.size())) {
    AddPlace(*relay, reply);
    reply.set_relays(1);
  }
  for (std::size_t i = 0; i < std::min(holders.size(), kPlaces); ++i) AddPlace(*holders[i], reply);
  parts_.out.Add(Answer<proto::ModelPlaces>{event.ask, std::move(reply)});
}

std::vector<const Member*> Copies::HoldersFor(const PlacesAsked& event) {
  std::vector<const Member*> holders;
  for (const auto& node : table_.copies().HoldersOf(event.digest)) {
    const auto* member = parts_.members.table().Find(node);
    if (node == event.node || member == nullptr || !parts_.members.HasNode(node)) continue;
    if (!member->record.address().empty()) holders.push_back(member);
  }
  if (!holders.empty())
    std::rotate(holders.begin(), holders.begin() + static_cast<std::ptrdiff_t>(located_++ % holders.size()),
                holders.end());
  return holders;
}

const Member* Copies::RelayFor(const PlacesAsked& event, std::size_t holders) {
  // A node that was not asked to adopt the model does not tell the manager when its fetch ends.
  if (parts_.settings.fetch_policy != FetchPolicy::kRelay) return nullptr;
  if (!table_.copies().IsAsked(event.digest, event.node)) return nullptr;
  const auto* record = parts_.catalogue.functions().table().UserOf(event.digest);
  if (record == nullptr || record->weights_bytes() < kRelayedFrom) return nullptr;
  const auto follows = relays_.Begin(event.digest, event.node, holders);
  if (!follows || !parts_.members.HasNode(*follows)) return nullptr;
  const auto* member = parts_.members.table().Find(*follows);
  return member == nullptr || member->record.address().empty() ? nullptr : member;
}

void Copies::Disown(const std::string& digest, const std::string& node) {
  table_.Disowned(digest, node);
  relays_.Over(digest, node);
}

void Copies::AdoptionLost(const std::string& digest, const std::string& node) {
  // A deployment that waits is answered by the copy that is being made instead, if there is one.
  if (table_.copies().BeingAdopted(digest)) return;
  AdoptionEnded(digest, absl::UnavailableError(absl::StrCat(
                            "node '", node, "' left the cluster before it had adopted the model")));
}

void Copies::AdoptionEnded(const std::string& digest, const absl::Status& status) {
  const auto [begin, end] = deploying_.equal_range(digest);
  std::vector<Deployed> waiting;
  for (auto it = begin; it != end; ++it) waiting.push_back(std::move(it->second));
  deploying_.erase(begin, end);
  for (const auto& deployed : waiting) parts_.deployments.Adopted(deployed, status);
}

void Copies::AwaitAdoption(Deployed deployed) {
  const auto& digest = deployed.record.model_digest();
  if (!table_.copies().HoldersOf(digest).empty() || !table_.copies().BeingAdopted(digest))
    return parts_.deployments.Adopted(deployed, absl::OkStatus());
  deploying_.emplace(std::string(digest), std::move(deployed));
}

}  // namespace troupe::cluster
