// MODEL RELAYS: which node a node fetches a model from, when other nodes fetch the same model at that time.
//
// A node that has a model sends it to as many nodes at a time as have it, so that each fetch has the link of one node to
// itself. Every further node follows a node that is still fetching, and takes from that one each range as soon as it has
// come there: a chain. So a model reaches many nodes in about the time of one transfer, and a node that has it sends it once.
//
//   a fetch:   absent -> from holders                  as many as there are holders
//              absent -> behind another fetch          which no other fetch follows
//              -> absent                               the node adopted the model, could not, or left
//
// Only fetches that end with an answer to the manager are known here. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace troupe::cluster {

class ModelRelays {
 public:
  // `node` fetches the model from now on, anew if it was known to fetch it; `holders`: nodes that have it. Answers the
  // node that it follows; nothing: it fetches from the holders, or from the manager where there are none.
  std::optional<std::string> Begin(const std::string& digest, const std::string& node, std::size_t holders);
  // The node has the model now, or gave up.
  void Over(const std::string& digest, const std::string& node);
  void NodeGone(const std::string& node);
  [[nodiscard]] std::size_t fetches() const;

 private:
  // The fetches of one model.
  class Chains {
   public:
    void Add(const std::string& node, const std::string& follows);
    void Remove(const std::string& node);
    // Fetches that follow no node which is fetching. What follows a node that has the model by now has the link of a holder.
    [[nodiscard]] std::size_t from_holders() const { return fetches_.size() - behind_; }
    // The node of the oldest fetch that no other follows, and that does not wait for `node` itself.
    [[nodiscard]] std::optional<std::string> EndFor(const std::string& node) const;
    [[nodiscard]] std::size_t size() const { return fetches_.size(); }

   private:
    struct Fetch {
      std::uint64_t number = 0;
      std::string follows;  // empty: no node
    };
    [[nodiscard]] std::size_t FollowersOf(const std::string& node) const;
    [[nodiscard]] bool WaitsFor(const std::string& waiting, const std::string& node) const;

    std::map<std::string, Fetch> fetches_;  // by node
    std::map<std::string, std::size_t>
        followers_;  // by the node that they follow, also when it fetches no more
    std::map<std::uint64_t, std::string> unfollowed_;  // the ends of the chains, by number
    std::size_t behind_ = 0;                           // fetches that follow one of these
    std::uint64_t next_ = 1;
  };

  std::map<std::string, Chains> models_;  // by digest
};

}  // namespace troupe::cluster
