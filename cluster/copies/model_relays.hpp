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
#include <map>
#include <optional>
#include <string>
#include <vector>

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
  struct Fetch {
    std::string node;
    std::string follows;  // empty: no node
  };
  using Fetches = std::vector<Fetch>;  // of one model, in the order in which they began

  [[nodiscard]] static const Fetch* Find(const Fetches& fetches, const std::string& node);
  // The first fetch that no other follows, and that does not wait for `node` itself.
  [[nodiscard]] static std::optional<std::string> EndOfAChain(const Fetches& fetches,
                                                              const std::string& node);
  [[nodiscard]] static bool WaitsFor(const Fetches& fetches, const Fetch& fetch, const std::string& node);

  std::map<std::string, Fetches> models_;  // by digest
};

}  // namespace troupe::cluster
