#include "cluster/copies/placement_table.hpp"

#include <algorithm>

namespace troupe::cluster {

namespace {

PlacementNode PlacementNodeOf(const Member& member) {
  PlacementNode node;
  node.name = member.record.name();
  node.region = Bytes(member.record.host_region_bytes());
  for (const auto& gpu : member.record.gpus())
    if (IsFit(gpu)) {
      node.gpu_memory = std::max(node.gpu_memory, Bytes(gpu.memory_bytes()));
      ++node.gpus;
    }
  node.accepts = member.record.state() == proto::MEMBER_ALIVE;
  node.leaving = member.record.state() == proto::MEMBER_DRAINING;
  return node;
}

std::vector<PlacementNode> NodesOf(const MembershipTable& members) {
  std::vector<PlacementNode> nodes;
  for (const auto& [name, member] : members.members()) {
    const auto state = member.record.state();
    if (member.record.kind() != proto::MEMBER_NODE) continue;
    if (state == proto::MEMBER_DEAD || state == proto::MEMBER_LEFT) continue;
    nodes.push_back(PlacementNodeOf(member));
  }
  return nodes;
}

PlacementModel ModelOf(const proto::FunctionRecord& record) {
  return {record.model_digest(), record.key().name(), Bytes(record.weights_bytes() + record.model_bytes()),
          Bytes(record.weights_bytes())};
}

}  // namespace

void PlacementTable::NodeJoined(const std::string& node, const std::vector<std::string>& adopted) {
  anew_.nodes.insert(node);
  copies_.NodeJoined(node, adopted);
  for (const auto& digest : adopted) TouchLater(digest);
}

void PlacementTable::NodeGone(const std::string& node) {
  anew_.nodes.insert(node);
  copies_.NodeGone(node);
}

void PlacementTable::Adopted(const std::string& digest, const std::string& node) {
  anew_.models.insert(digest);
  copies_.Adopted(digest, node);
}

void PlacementTable::AdoptFailed(const std::string& digest, const std::string& node, Time now) {
  anew_.models.insert(digest);
  anew_.retry_at = std::min(anew_.retry_at, copies_.Failed(digest, node, now));
}

void PlacementTable::Disowned(const std::string& digest, const std::string& node) {
  anew_.models.insert(digest);
  copies_.Disowned(digest, node);
}

void PlacementTable::TouchDue(Time now) {
  if (now < anew_.retry_at) return;
  anew_.retry_at = std::min(copies_.AddDue(now, anew_.models), homes_.AddDue(now, anew_.models));
}

std::vector<PlacementMove> PlacementTable::Plan(const FunctionTable& functions,
                                                const MembershipTable& members, Time now) {
  SetNodes(members);
  TouchDue(now);
  for (const auto& digest : demanded_.Update(regions_.GpusOfANode(), now)) anew_.models.insert(digest);
  DivideFirstPlan(functions);
  if (!anew_.all && anew_.models.empty() && anew_.bare.empty() && anew_.held.empty()) return {};
  ++plans_.made;
  const auto touched = TakeTouched();
  std::optional<PlacementPlan> plan;
  if (!anew_.all && !tight_) plan = PlanSome(functions, touched);
  if (!plan) {
    plan = PlanAll(functions);
    anew_.bare.clear();
    anew_.held.clear();
  }
  anew_.all = false;
  anew_.retry_at = std::min(anew_.retry_at, homes_.AwaitLeases(members, now));
  return Ask(std::move(plan->moves), now);
}

void PlacementTable::SetNodes(const MembershipTable& members) {
  if (anew_.members == members.version() && anew_.nodes.empty()) return;
  anew_.members = members.version();
  const auto changed = std::exchange(anew_.nodes, {});
  if (!regions_.SetNodes(NodesOf(members), changed, [this](const DigestKey& model) { TouchLater(model); }))
    return;
  // What had too few copies, or none at all, may have more now.
  for (const auto& [digest, why] : problems_) TouchLater(digest);
}

void PlacementTable::DivideFirstPlan(const FunctionTable& functions) {
  if (!anew_.all || functions.models().size() <= kAtOnce) return;
  anew_.all = false;
  homes_.LeaveAll(functions);
  for (const auto& [digest, use] : functions.models()) TouchLater(digest);
}

std::set<std::string> PlacementTable::TakeTouched() {
  auto touched = std::exchange(anew_.models, {});
  const std::size_t most = touched.size() + kAtOnce;
  for (auto* models : {&anew_.bare, &anew_.held})
    while (!models->empty() && touched.size() < most)
      touched.insert(models->extract(models->begin()).value().Text());
  return touched;
}

void PlacementTable::AddWanted(const FunctionTable& functions, const std::string& digest,
                               Models& models) const {
  functions.ShowLoadedUserOf(digest, [&](const proto::FunctionRecord& record) {
    const bool single = functions.models().at(digest).loaded_with_state > 0;
    if (single && homes_.MustWait(digest)) return;
    auto& model = models.emplace_back(ModelOf(record));
    // All that run this model run where the state of one of them is.
    model.single = single;
    model.copies = demanded_.Of(digest);
    if (single) model.home = homes_.Of(digest);
  });
}

PlacementPlan PlacementTable::PlanAll(const FunctionTable& functions) {
  ++plans_.of_all_models;
  Models models;
  for (const auto& [digest, use] : functions.models()) AddWanted(functions, digest, models);
  auto plan = PlanPlacement(models, regions_.nodes(), copies_.Held(), {replicas_});
  homes_.LeaveAll(functions);
  regions_.Clear();
  problems_.clear();
  Take(models, plan);
  tight_ = plan.tight;
  return plan;
}

std::optional<PlacementPlan> PlacementTable::PlanSome(const FunctionTable& functions,
                                                      const std::set<std::string>& digests) {
  Models models;
  PlacementMap held;
  for (const auto& digest : digests) {
    AddWanted(functions, digest, models);
    copies_.AddHeld(digest, held);
  }
  auto plan = PlanPlacement(models, regions_.nodes(), held, {replicas_});
  homes_.Leave(functions, digests);
  for (const auto& digest : digests) {
    problems_.erase(digest);
    regions_.Remove(digest);
  }
  if (plan.tight || !regions_.HasRoom(models, plan)) return std::nullopt;
  Take(models, plan);
  return plan;
}

void PlacementTable::Take(const Models& models, const PlacementPlan& plan) {
  for (const auto& model : models) {
    const auto placed = plan.placements.find(model.digest);
    if (placed == plan.placements.end() || placed->second.empty()) continue;
    regions_.Add(model, placed->second, model.single ? 1 : std::max(replicas_, model.copies));
    if (model.single && model.home.empty()) homes_.Bind(model.digest, placed->second.front());
  }
  for (const auto& problem : plan.problems) problems_[problem.digest] = problem.why;
}

std::vector<PlacementMove> PlacementTable::Ask(std::vector<PlacementMove> wanted, Time now) {
  std::vector<PlacementMove> moves;
  for (auto& move : wanted) {
    if (!move.adopt) {
      // The last copies go only once nothing is on its way to replace them. A node may not be reached: then it
      // is asked again.
      anew_.models.insert(move.digest);
      if (!copies_.BeingAdopted(move.digest)) moves.push_back(std::move(move));
      continue;
    }
    if (copies_.Ask(move.digest, move.node, now)) moves.push_back(std::move(move));
  }
  SortByUrgency(moves, now);
  return moves;
}

// A model that no node holds cannot be served: it comes first, and what is asked for most before the rest.
void PlacementTable::SortByUrgency(std::vector<PlacementMove>& moves, Time now) const {
  const auto rank = [this](const PlacementMove& move) {
    if (!move.adopt) return 2;
    return copies_.IsHeld(move.digest) ? 1 : 0;
  };
  using Key = std::pair<int, double>;
  std::vector<std::pair<Key, PlacementMove>> keyed;
  keyed.reserve(moves.size());
  for (auto& move : moves) {
    const Key key{rank(move), move.adopt ? -demand_.Of(move.digest, now) : 0};
    keyed.emplace_back(key, std::move(move));
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < moves.size(); ++i) moves[i] = std::move(keyed[i].second);
}

void PlacementTable::Unbind(const std::string& digest) {
  homes_.Unbind(digest);
  anew_.models.insert(digest);
}

std::string PlacementTable::OtherHome(const proto::FunctionRecord& function, const MembershipTable& members,
                                      const std::set<std::string>& without) {
  auto model = ModelOf(function);
  model.single = true;
  auto nodes = NodesOf(members);
  std::erase_if(nodes,
                [&](const PlacementNode& node) { return !node.accepts || without.contains(node.name); });
  const auto plan = PlanPlacement({model}, nodes, {}, {1});
  const auto placed = plan.placements.find(model.digest);
  return placed == plan.placements.end() || placed->second.empty() ? std::string() : placed->second.front();
}

absl::Status PlacementTable::CheckFits(const proto::FunctionRecord& function,
                                       const MembershipTable& members) {
  const auto nodes = NodesOf(members);
  return nodes.empty() ? absl::OkStatus() : cluster::CheckFits(ModelOf(function), nodes);
}

Bytes PlacementTable::LargestGpu(const MembershipTable& members) {
  Bytes largest;
  for (const auto& node : NodesOf(members)) largest = std::max(largest, node.gpu_memory);
  return largest;
}

}  // namespace troupe::cluster
