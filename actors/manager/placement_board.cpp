#include "actors/manager/placement_board.hpp"

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

void PlacementBoard::NodeJoined(const std::string& node, const std::vector<std::string>& adopted) {
  NodeGone(node);
  for (const auto& digest : adopted) Insert(held_[digest], node);
}

void PlacementBoard::NodeGone(const std::string& node) {
  changed_ = true;
  for (auto& [digest, nodes] : held_) std::erase(nodes, node);
  std::erase_if(held_, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(asked_, [&](const Copy& copy) { return copy.second == node; });
  std::erase_if(not_before_, [&](const auto& entry) { return entry.first.second == node; });
}

void PlacementBoard::Adopted(const std::string& digest, const std::string& node) {
  changed_ = true;
  asked_.erase({digest, node});
  not_before_.erase({digest, node});
  Insert(held_[digest], node);
}

void PlacementBoard::AdoptFailed(const std::string& digest, const std::string& node, Time now) {
  changed_ = true;
  asked_.erase({digest, node});
  not_before_[{digest, node}] = now + retry_;
}

void PlacementBoard::Disowned(const std::string& digest, const std::string& node) {
  changed_ = true;
  const auto it = held_.find(digest);
  if (it == held_.end()) return;
  std::erase(it->second, node);
  if (it->second.empty()) held_.erase(it);
}

Time PlacementBoard::NextRetry(Time now) const {
  Time next = Time::max();
  for (const auto& [copy, at] : not_before_)
    if (at > now) next = std::min(next, at);
  return next;
}

std::vector<cluster::PlacementMove> PlacementBoard::Plan(const cluster::FunctionTable& functions,
                                                         std::uint64_t revision,
                                                         const cluster::MembershipTable& members, Time now) {
  auto nodes = NodesOf(members);
  if (!changed_ && revision == revision_ && nodes == nodes_ && now < retry_at_) return {};
  ++plans_;
  changed_ = false;
  revision_ = revision;
  nodes_ = std::move(nodes);
  retry_at_ = NextRetry(now);
  std::map<std::string, cluster::PlacementModel> wanted;
  std::set<std::string> with_state;
  for (const auto& [name, versions] : functions.functions()) {
    for (const auto& [version, record] : versions) {
      if (record.state_size() > 0) with_state.insert(record.model_digest());
      if (!record.loaded()) continue;
      auto& model = wanted.try_emplace(record.model_digest(), ModelOf(record)).first->second;
      // All that run this model run where the state of one of them is.
      model.single = model.single || record.state_size() > 0;
    }
  }
  for (auto& [digest, model] : wanted) {
    const auto home = homes_.find(digest);
    if (model.single && home != homes_.end()) model.home = home->second;
  }
  std::vector<cluster::PlacementModel> models;
  for (auto& [digest, model] : wanted) models.push_back(std::move(model));
  auto plan = cluster::PlanPlacement(models, nodes_, held_, {replicas_});
  problems_ = std::move(plan.problems);
  BindHomes(models, with_state, plan.placements);
  std::vector<cluster::PlacementMove> moves;
  for (auto& move : plan.moves) {
    const Copy copy{move.digest, move.node};
    if (!move.adopt) {
      // The last copies go only once nothing is on its way to replace them. Whoever asks the nodes may not
      // reach one: then it is asked again.
      changed_ = true;
      if (!BeingAdopted(move.digest)) moves.push_back(std::move(move));
      continue;
    }
    const auto wait = not_before_.find(copy);
    if (wait != not_before_.end() && wait->second > now) continue;
    if (asked_.insert(copy).second) moves.push_back(std::move(move));
  }
  return moves;
}

void PlacementBoard::BindHomes(const std::vector<cluster::PlacementModel>& models,
                               const std::set<std::string>& with_state,
                               const cluster::PlacementMap& placements) {
  std::erase_if(homes_, [&](const auto& home) {
    if (with_state.contains(home.first)) return false;
    old_homes_.push_back(home.first);
    return true;
  });
  for (const auto& model : models) {
    const auto placed = placements.find(model.digest);
    if (!model.single || !model.home.empty() || placed == placements.end() || placed->second.empty())
      continue;
    homes_[model.digest] = new_homes_[model.digest] = placed->second.front();
  }
}

void PlacementBoard::Unbind(const std::string& digest) {
  homes_.erase(digest);
  changed_ = true;
}

std::vector<std::string> PlacementBoard::HoldersOf(const std::string& digest) const {
  const auto it = held_.find(digest);
  return it == held_.end() ? std::vector<std::string>() : it->second;
}

bool PlacementBoard::BeingAdopted(const std::string& digest) const {
  const auto it = asked_.lower_bound({digest, ""});
  return it != asked_.end() && it->first == digest;
}

std::vector<proto::PlacementRecord> PlacementBoard::Records() const {
  std::vector<proto::PlacementRecord> records;
  for (const auto& [digest, nodes] : held_) {
    auto& record = records.emplace_back();
    record.set_model_digest(digest);
    for (const auto& node : nodes) record.add_nodes(node);
  }
  return records;
}

absl::Status PlacementBoard::CheckFits(const proto::FunctionRecord& function,
                                       const cluster::MembershipTable& members) {
  const auto nodes = NodesOf(members);
  return nodes.empty() ? absl::OkStatus() : cluster::CheckFits(ModelOf(function), nodes);
}

}  // namespace troupe::actors
