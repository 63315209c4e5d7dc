#include "cluster/placement.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

namespace {

// FNV-1a with a final mix: the same on every machine, and fast enough for every pair of model and node, since what a model
// begins is continued for each node.
constexpr std::uint64_t kFnvBegin = 0xcbf29ce484222325ULL;
std::uint64_t Continue(std::uint64_t hash, std::string_view text) {
  constexpr std::uint64_t kPrime = 0x100000001b3ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return (hash ^ 0xffU) * kPrime;
}
std::uint64_t Mixed(std::uint64_t hash) {
  hash = (hash ^ (hash >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27U)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31U);
}

struct Room {
  const PlacementNode* node;
  Bytes used;
};

bool Contains(const PlacementMap& map, const std::string& digest, const std::string& node) {
  const auto it = map.find(digest);
  return it != map.end() && std::binary_search(it->second.begin(), it->second.end(), node);
}

// The nodes of one model in the order in which they are to hold it. Few of them are asked for, so only the first are kept, and
// all of them once those were taken.
class Ranking {
 public:
  struct Inputs {
    const PlacementModel& model;
    std::vector<Room>& rooms;
    const PlacementMap& current;
  };
  explicit Ranking(const Inputs& inputs) : inputs_(inputs) {
    constexpr std::size_t kAhead = 4;
    Fill(kAhead);
  }
  // How many nodes could hold it.
  [[nodiscard]] std::size_t size() const { return size_; }
  // Not called when there is none.
  [[nodiscard]] const Room& first() const { return *best_.front().room; }
  // The next node; null when there is no other.
  Room* Take() {
    if (next_ == size_) return nullptr;
    if (next_ == best_.size()) Fill(size_);
    return best_[next_++].room;
  }

 private:
  struct Candidate {
    double score;
    Room* room;
  };
  static bool IsBefore(const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.room->node->name < b.room->node->name;
  }
  void Fill(std::size_t most) {
    const PlacementModel& model = inputs_.model;
    const PlacementRank rank(model.digest);
    std::vector<Candidate> all;
    all.reserve(inputs_.rooms.size());
    for (Room& room : inputs_.rooms) {
      const PlacementNode& node = *room.node;
      if (node.leaving || !CanHold(model, node)) continue;
      if (!model.home.empty() && node.name != model.home) continue;
      if (!node.accepts && !Contains(inputs_.current, model.digest, node.name)) continue;
      all.push_back({rank.Of(node), &room});
    }
    size_ = all.size();
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(most, size_));
    std::partial_sort(all.begin(), end, all.end(), IsBefore);
    best_.assign(all.begin(), end);
  }

  Inputs inputs_;
  std::vector<Candidate> best_;
  std::size_t size_ = 0, next_ = 0;
};

absl::Status TooFew(const PlacementModel& model, std::size_t placed, std::size_t wanted) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "function '", model.function, "' has ", placed, " of ", wanted, " host copies of ",
      FormatBytes(model.host_bytes), ": the other host regions are full; add nodes or enlarge them"));
}

// `living`: the names of the nodes, in order.
void AddMoves(const PlacementMap& current, const std::vector<std::string_view>& living, PlacementPlan& plan) {
  std::vector<PlacementMove> disown;
  for (const auto& [digest, nodes] : plan.placements) {
    for (const std::string& node : nodes) {
      if (!Contains(current, digest, node)) plan.moves.push_back({digest, node, true});
    }
  }
  for (const auto& [digest, nodes] : current) {
    for (const std::string& node : nodes) {
      if (std::ranges::binary_search(living, std::string_view(node)) &&
          !Contains(plan.placements, digest, node))
        disown.push_back({digest, node, false});
    }
  }
  plan.moves.insert(plan.moves.end(), disown.begin(), disown.end());
}

}  // namespace

// Weighted rendezvous hashing: a node wins a model with a probability that is its share of the weight.
PlacementRank::PlacementRank(const std::string& digest) : begun_(Continue(kFnvBegin, digest)) {}

double PlacementRank::Of(const PlacementNode& node) const {
  const double unit = (static_cast<double>(Mixed(Continue(begun_, node.name)) >> 11U) + 0.5) * 0x1.0p-53;
  return -static_cast<double>(node.region.count()) / std::log(unit);
}

bool CanHold(const PlacementModel& model, const PlacementNode& node) {
  return model.device_bytes <= node.gpu_memory && model.host_bytes <= node.region;
}

absl::Status CheckFits(const PlacementModel& model, const std::vector<PlacementNode>& nodes) {
  if (nodes.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no node is there that could hold function '", model.function, "'; start one"));
  }
  Bytes memory;
  Bytes region;
  for (const PlacementNode& node : nodes) {
    memory = std::max(memory, node.gpu_memory);
    region = std::max(region, node.region);
  }
  if (model.device_bytes > memory) {
    return absl::FailedPreconditionError(absl::StrCat(
        "function '", model.function, "' needs ", FormatBytes(model.device_bytes),
        " of GPU memory for its weights, and the largest GPU has ", FormatBytes(memory),
        "; removed and deployed again it is divided into stages that fit, and --stage-memory says how large"));
  }
  if (model.host_bytes > region) {
    return absl::FailedPreconditionError(
        absl::StrCat("function '", model.function, "' needs ", FormatBytes(model.host_bytes),
                     " of a host region, and the largest has ", FormatBytes(region),
                     "; enlarge the host region of a node"));
  }
  const bool fits =
      std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) { return CanHold(model, node); });
  if (fits) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("no single node has both ", FormatBytes(model.host_bytes), " of host region and a GPU of ",
                   FormatBytes(model.device_bytes), " for function '", model.function, "'"));
}

PlacementPlan PlanPlacement(const std::vector<PlacementModel>& models,
                            const std::vector<PlacementNode>& nodes, const PlacementMap& current,
                            const PlacementOptions& options) {
  PlacementPlan plan;
  std::vector<Room> rooms;
  std::vector<std::string_view> living;
  for (const PlacementNode& node : nodes) {
    rooms.push_back({&node, Bytes()});
    living.emplace_back(node.name);
  }
  std::ranges::sort(living);
  std::vector<const PlacementModel*> order;
  for (const PlacementModel& model : models) order.push_back(&model);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->digest < b->digest; });
  std::vector<Ranking> ranked;
  ranked.reserve(order.size());
  for (const auto* model : order) ranked.emplace_back(Ranking::Inputs{*model, rooms, current});
  const auto floor = [&](std::size_t i) { return order[i]->single ? 1U : options.replicas; };
  const auto copies = [&](std::size_t i) {
    return order[i]->single ? 1U : std::max(options.replicas, order[i]->copies);
  };
  std::uint32_t most = options.replicas;
  for (std::size_t i = 0; i < order.size(); ++i) most = std::max(most, copies(i));
  // No rank is beyond the last node.
  most = static_cast<std::uint32_t>(std::min<std::size_t>(most, nodes.size()));
  // Every model gets its first copy before any gets its second: scarce room serves as many models as it can.
  for (std::uint32_t copy = 0; copy < most; ++copy) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (copy >= copies(i)) continue;
      auto& placed = plan.placements[order[i]->digest];
      while (Room* room = ranked[i].Take()) {
        if (room->used + order[i]->host_bytes > room->node->region) {
          plan.tight = true;
          continue;
        }
        room->used += order[i]->host_bytes;
        placed.push_back(room->node->name);
        break;
      }
      // Without room anywhere one node keeps it all the same, on its disk while it is cold.
      if (copy == 0 && placed.empty() && ranked[i].size() > 0) placed.push_back(ranked[i].first().node->name);
    }
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::vector<std::string>& placed = plan.placements[order[i]->digest];
    std::sort(placed.begin(), placed.end());
    const std::size_t wanted = std::min<std::size_t>(floor(i), ranked[i].size());
    if (ranked[i].size() == 0) {
      absl::Status why = CheckFits(*order[i], nodes);
      if (!order[i]->home.empty()) {
        why = absl::UnavailableError(absl::StrCat(
            "function '", order[i]->function, "' has its state on node '", order[i]->home,
            "', which is gone or draining: bring it back, or remove the function to begin anew"));
      } else if (why.ok()) {
        why = absl::UnavailableError("every node that could hold it is draining");
      }
      plan.problems.push_back({order[i]->digest, std::move(why)});
    } else if (placed.size() < wanted) {
      plan.problems.push_back({order[i]->digest, TooFew(*order[i], placed.size(), wanted)});
    }
  }
  AddMoves(current, living, plan);
  return plan;
}

}  // namespace troupe::cluster
