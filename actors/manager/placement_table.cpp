#include "actors/manager/placement_table.hpp"

#include <algorithm>

namespace troupe::actors {

namespace {

cluster::PlacementNode NodeOf(const cluster::Member& member) {
  cluster::PlacementNode node;
  node.name = member.record.name();
  node.region = Bytes(member.record.host_region_bytes());
  for (const auto& gpu : member.record.gpus())
    if (gpu.state() != "unfit") node.gpu_memory = std::max(node.gpu_memory, Bytes(gpu.memory_bytes()));
  node.accepts = member.record.state() == proto::MEMBER_ALIVE;
  node.leaving = member.record.state() == proto::MEMBER_DRAINING;
  return node;
}

std::vector<cluster::PlacementNode> NodesOf(const cluster::MembershipTable& members) {
  std::vector<cluster::PlacementNode> nodes;
  for (const auto& [name, member] : members.members()) {
    const auto state = member.record.state();
    if (member.record.kind() != proto::MEMBER_NODE) continue;
    if (state == proto::MEMBER_DEAD || state == proto::MEMBER_LEFT) continue;
    nodes.push_back(NodeOf(member));
  }
  return nodes;
}

cluster::PlacementModel ModelOf(const proto::FunctionRecord& record) {
  return {record.model_digest(), record.key().name(), Bytes(record.weights_bytes() + record.model_bytes()),
          Bytes(record.weights_bytes())};
}

void Insert(std::vector<std::string>& sorted, const std::string& name) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), name);
  if (at == sorted.end() || *at != name) sorted.insert(at, name);
}

}  // namespace

void PlacementTable::NodeJoined(const std::string& node, const std::vector<std::string>& adopted) {
  NodeGone(node);
  for (const auto& digest : adopted) Insert(held_[digest], node);
}

void PlacementTable::NodeGone(const std::string& node) {
  all_ = true;
  for (auto& [digest, nodes] : held_) std::erase(nodes, node);
  std::erase_if(held_, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(asked_, [&](const Copy& copy) { return copy.second == node; });
  std::erase_if(not_before_, [&](const auto& entry) { return entry.first.second == node; });
}

void PlacementTable::Adopted(const std::string& digest, const std::string& node) {
  touched_.insert(digest);
  asked_.erase({digest, node});
  not_before_.erase({digest, node});
  Insert(held_[digest], node);
}

void PlacementTable::AdoptFailed(const std::string& digest, const std::string& node, Time now) {
  touched_.insert(digest);
  asked_.erase({digest, node});
  not_before_[{digest, node}] = now + retry_;
  retry_at_ = std::min(retry_at_, now + retry_);
}

void PlacementTable::Disowned(const std::string& digest, const std::string& node) {
  touched_.insert(digest);
  asked_.erase({digest, node});
  const auto it = held_.find(digest);
  if (it == held_.end()) return;
  std::erase(it->second, node);
  if (it->second.empty()) held_.erase(it);
}

void PlacementTable::TouchDue(Time now) {
  if (now < retry_at_) return;
  retry_at_ = Time::max();
  for (const auto& [copy, at] : not_before_) {
    if (at > now) {
      retry_at_ = std::min(retry_at_, at);
    } else {
      touched_.insert(copy.first);
    }
  }
  std::erase_if(not_anew_before_, [&](const auto& entry) {
    if (entry.second <= now) return touched_.insert(entry.first), true;
    retry_at_ = std::min(retry_at_, entry.second);
    return false;
  });
}

std::vector<cluster::PlacementMove> PlacementTable::Plan(const cluster::FunctionTable& functions,
                                                         const cluster::MembershipTable& members, Time now) {
  auto nodes = NodesOf(members);
  all_ = all_ || nodes != nodes_;
  nodes_ = std::move(nodes);
  TouchDue(now);
  if (!all_ && touched_.empty()) return {};
  ++plans_;
  const auto touched = std::exchange(touched_, {});
  std::optional<cluster::PlacementPlan> plan;
  if (!all_ && !tight_) plan = PlanSome(functions, touched);
  if (!plan) plan = PlanAll(functions);
  all_ = false;
  AwaitLeases(members, now);
  return Ask(std::move(plan->moves), now);
}

void PlacementTable::AddWanted(const cluster::FunctionTable& functions, const std::string& digest,
                               Models& models) const {
  const auto* record = functions.LoadedUserOf(digest);
  if (record == nullptr) return;
  const bool single = functions.models().at(digest).loaded_with_state > 0;
  if (single && not_anew_before_.contains(digest)) return;
  auto& model = models.emplace_back(ModelOf(*record));
  // All that run this model run where the state of one of them is.
  model.single = single;
  const auto home = homes_.find(digest);
  if (model.single && home != homes_.end()) model.home = home->second;
}

cluster::PlacementPlan PlacementTable::PlanAll(const cluster::FunctionTable& functions) {
  ++full_plans_;
  Models models;
  for (const auto& [digest, use] : functions.models()) AddWanted(functions, digest, models);
  auto plan = cluster::PlanPlacement(models, nodes_, held_, {replicas_});
  for (const auto& [digest, node] : Homes(homes_)) LeaveHome(functions, digest);
  planned_.clear();
  used_.clear();
  problems_.clear();
  Take(models, plan);
  tight_ = plan.tight;
  return plan;
}

std::optional<cluster::PlacementPlan> PlacementTable::PlanSome(const cluster::FunctionTable& functions,
                                                               const std::set<std::string>& digests) {
  Models models;
  cluster::PlacementMap held;
  for (const auto& digest : digests) {
    AddWanted(functions, digest, models);
    if (const auto it = held_.find(digest); it != held_.end()) held.insert(*it);
  }
  auto plan = cluster::PlanPlacement(models, nodes_, held, {replicas_});
  for (const auto& digest : digests) {
    LeaveHome(functions, digest);
    problems_.erase(digest);
    const auto before = planned_.extract(digest);
    if (before.empty()) continue;
    for (const auto& node : before.mapped().nodes) used_[node] -= before.mapped().bytes;
  }
  if (plan.tight || !Fits(models, plan)) return std::nullopt;
  Take(models, plan);
  return plan;
}

bool PlacementTable::Fits(const Models& models, const cluster::PlacementPlan& plan) const {
  auto used = used_;
  for (const auto& model : models) {
    const auto placed = plan.placements.find(model.digest);
    if (placed == plan.placements.end()) continue;
    for (const auto& node : placed->second) used[node] += model.host_bytes;
  }
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& node) { return used[node.name] <= node.region; });
}

void PlacementTable::Take(const Models& models, const cluster::PlacementPlan& plan) {
  for (const auto& model : models) {
    const auto placed = plan.placements.find(model.digest);
    if (placed == plan.placements.end() || placed->second.empty()) continue;
    planned_[model.digest] = {model.host_bytes, placed->second};
    for (const auto& node : placed->second) used_[node] += model.host_bytes;
  }
  for (const auto& problem : plan.problems) problems_[problem.digest] = problem.why;
  BindHomes(models, plan.placements);
}

std::vector<cluster::PlacementMove> PlacementTable::Ask(std::vector<cluster::PlacementMove> wanted,
                                                        Time now) {
  std::vector<cluster::PlacementMove> moves;
  for (auto& move : wanted) {
    const Copy copy{move.digest, move.node};
    if (!move.adopt) {
      // The last copies go only once nothing is on its way to replace them. The nodes that are asked may not
      // be reached: then they are asked again.
      touched_.insert(move.digest);
      if (!BeingAdopted(move.digest)) moves.push_back(std::move(move));
      continue;
    }
    const auto wait = not_before_.find(copy);
    if (wait != not_before_.end() && wait->second > now) continue;
    if (asked_.insert(copy).second) moves.push_back(std::move(move));
  }
  SortByUrgency(moves, now);
  return moves;
}

// A model without a holder cannot be served: it comes first, and the models with the most requests before the
// rest.
void PlacementTable::SortByUrgency(std::vector<cluster::PlacementMove>& moves, Time now) const {
  const auto rank = [this](const cluster::PlacementMove& move) {
    if (!move.adopt) return 2;
    return held_.contains(move.digest) ? 1 : 0;
  };
  using Key = std::pair<int, double>;
  std::vector<std::pair<Key, cluster::PlacementMove>> keyed;
  keyed.reserve(moves.size());
  for (auto& move : moves) {
    const Key key{rank(move), move.adopt ? -demand_.Of(move.digest, now) : 0};
    keyed.emplace_back(key, std::move(move));
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < moves.size(); ++i) moves[i] = std::move(keyed[i].second);
}

void PlacementTable::LeaveHome(const cluster::FunctionTable& functions, const std::string& digest) {
  const auto use = functions.models().find(digest);
  if (use != functions.models().end() && use->second.with_state > 0) return;
  const auto home = homes_.extract(digest);
  if (home.empty()) return;
  old_homes_.push_back(digest);
  left_[digest] = home.mapped();
}

void PlacementTable::AwaitLeases(const cluster::MembershipTable& members, Time now) {
  for (const auto& [digest, node] : std::exchange(left_, {})) {
    const auto* member = members.Find(node);
    const bool there = member != nullptr && member->record.state() != proto::MEMBER_DEAD;
    const auto free = (member == nullptr ? now : member->last_heard) + exclusive_lease_;
    if (there || free <= now) continue;
    not_anew_before_[digest] = free;
    retry_at_ = std::min(retry_at_, free);
  }
}

void PlacementTable::BindHomes(const Models& models, const cluster::PlacementMap& placements) {
  for (const auto& model : models) {
    const auto placed = placements.find(model.digest);
    if (!model.single || !model.home.empty() || placed == placements.end() || placed->second.empty())
      continue;
    homes_[model.digest] = new_homes_[model.digest] = placed->second.front();
  }
}

void PlacementTable::Unbind(const std::string& digest) {
  homes_.erase(digest);
  touched_.insert(digest);
}

std::vector<std::string> PlacementTable::HoldersOf(const std::string& digest) const {
  const auto it = held_.find(digest);
  return it == held_.end() ? std::vector<std::string>() : it->second;
}

bool PlacementTable::HoldsAlone(const std::string& node) const {
  return std::any_of(held_.begin(), held_.end(), [&](const auto& entry) {
    return entry.second.size() == 1 && entry.second.front() == node;
  });
}

bool PlacementTable::BeingAdopted(const std::string& digest) const {
  const auto it = asked_.lower_bound({digest, ""});
  return it != asked_.end() && it->first == digest;
}

cluster::PlacementMap PlacementTable::Planned() const {
  cluster::PlacementMap map;
  for (const auto& [digest, place] : planned_) map[digest] = place.nodes;
  return map;
}

absl::Status PlacementTable::CheckFits(const proto::FunctionRecord& function,
                                       const cluster::MembershipTable& members) {
  const auto nodes = NodesOf(members);
  return nodes.empty() ? absl::OkStatus() : cluster::CheckFits(ModelOf(function), nodes);
}

}  // namespace troupe::actors
