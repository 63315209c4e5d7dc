// STATE MOVES: moves the states of a model's functions, and of their sequences, to another node: when their node drains, or when
// an operator orders it.
// A node that has copies takes nothing over: the copies are the states when the old node has given them up. When the old node
// is gone, such a node becomes the home with the step `stored` alone (Restore).
//
//   given up     the old node ends its runs and writes everything back; from then on it begins none
//   taken over   the new node has each image on its disk
//   stored       the manager's store names the new home: from this moment the states are there
//   forgotten    the old node drops its images
//
// Whatever fails before the store was asked ends the move: the old node has the states as they were, and another try
// begins after a while. A node that joins anew has begun no run of such a function before it is asked to, so a move
// that it was part of ends, too. Once the store was asked, it may have the new home whatever it answers, so it is asked
// again until it has. When the new home comes back with an empty disk before that, the old one is stored as the home again: it has
// the states yet, or other nodes in step have them, of which one replaces it next. No state is at two nodes: the old one has given it
// up before the new one may begin.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/after_commit.hpp"
#include "cluster/records/changes.hpp"

namespace troupe::cluster {

struct Parts;

class StateMoves {
 public:
  // Of moves at a time; others begin when one of these has ended. To restore states moves none of their bytes, so that waits
  // for no other move.
  static constexpr std::size_t kMost = 4;

  explicit StateMoves(Parts& parts) : parts_(parts) {}

  // Before copies are placed: a state that moves has no place meanwhile.
  void Pulse();
  void On(const StatesGivenUp& event);
  void On(const StatesTakenOver& event);
  void On(const HomeMoved& stored, const absl::Status& status);
  // An operator's order, which is answered when the move has ended: at once with InvalidArgument (no state), NotFound (no such
  // function or node), FailedPrecondition (the node cannot have it) or Unavailable (not now).
  void Order(Ask ask, const proto::MoveFunction& wish);
  // In a heartbeat.
  void Heard(const std::string& node);
  // The home is gone, and `to` has copies of all that was acknowledged: it becomes the home. Or `to` is the home itself: the
  // states are lost, and begin anew there. `keeps`: the disk of the old home has them, too, should that come back.
  void Restore(const std::string& digest, const std::string& from, const std::string& to, bool keeps);
  [[nodiscard]] bool Moves(const std::string& digest) const { return moves_.contains(digest); }
  void TellLost(const std::string& digest, const std::string& home);
  // The store is asked for another home, and may have it.
  [[nodiscard]] bool Stores(const std::string& digest) const;
  // The life of it that took part in moves is over.
  void NodeJoined(const std::string& node);
  // The node joins with an empty disk: what the store is to have instead of what it is asked for.
  [[nodiscard]] Changes DiskIsNew(const std::string& node);

 private:
  enum class Stage { kGivingUp, kTakingOver, kStoring, kNotStored };
  struct Place {
    std::string node{};
    std::uint64_t epoch = 0;
  };
  struct Move {
    std::uint64_t number = 0;
    Place from{};
    Place to{};
    Stage stage = Stage::kGivingUp;
    Time again{};                    // when the store is asked once more
    bool restores = false;           // its old home is gone
    bool copied = false;             // the new home has copies
    bool keeps = false;              // the old home has them, too, when the new one is stored
    bool from_is_empty = false;      // the old home lost its disk
    std::set<std::string> others{};  // in step beside both
    bool turned = false;             // the old home is it again, since the new one lost its disk
    bool asked_turned = false;       // the store is asked for that
    std::optional<Ask> ask{};        // of the operator who ordered it
    std::set<std::string> asked{};   // states that the old home is asked to give up
  };
  struct Failed {
    Time until{};        // no other try before
    std::string node{};  // that could not take it
  };
  // By model digest.
  using Table = std::map<std::string, Move>;

  // All functions that keep a state with the model.
  using Keepers = std::vector<const proto::FunctionRecord*>;
  void Begin(const Keepers& keepers, const std::string& node, const std::string& to,
             std::optional<Ask> ask = std::nullopt);
  void AskFor(const Keepers& keepers, Move& move);
  void LookAtAsked(Table::iterator found);
  // Why it cannot be begun now; `node`: where it is to go.
  [[nodiscard]] absl::Status CheckOrder(const proto::FunctionRecord& record, const std::string& node) const;
  // The states are at `node`.
  void AnswerOrder(Ask ask, const std::string& digest);
  // `keeper`: one of the functions that keep a state with the model. Empty: no node can take the states over now.
  [[nodiscard]] std::string NextHome(const proto::FunctionRecord& keeper, const std::string& node) const;
  // The move that the answer is for; the end: it has ended, or goes on with other nodes.
  [[nodiscard]] Table::iterator Find(const std::string& digest, std::uint64_t number, Stage stage);
  [[nodiscard]] bool Lives(const Place& place) const;
  void Store(Table::iterator move);
  // Some node has the states when the new home has not.
  [[nodiscard]] static bool MayTurn(const Move& move);
  // The node has lost its disk. True: the store is to have something else than what it is asked for.
  [[nodiscard]] static bool Loses(Move& move, const std::string& node);
  [[nodiscard]] Changes ChangesOf(const std::string& digest, const Move& move) const;
  void TurnedBack(Table::iterator move);
  void TellMoved(const std::string& digest, const Move& move);
  void End(Table::iterator move, const absl::Status& why);
  void Close(Table::iterator move);

  Parts& parts_;
  Table moves_;
  std::map<std::string, Failed> failed_;
  // Models of which the node was the home, or was to be it, by node: it is told to forget their images unless it is in step.
  std::map<std::string, std::set<std::string>> stale_;
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
