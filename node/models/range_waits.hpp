// RANGE WAITS: questions of other nodes for ranges of objects that this node is still fetching.
//
//   a question:  asked -> here          the range has come already
//                asked -> waits -> here      it has come
//                                  -> over   the object is whole, or its fetch failed
//                                  -> given up
//
// Bytes of an object come in order, so that a range is here when as many bytes have come as are before its end. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::node {

class RangeWaits {
 public:
  using Ticket = std::uint64_t;
  // What has come of an object.
  struct Received {
    std::string upload;  // where it lies
    std::uint64_t total = 0;
    std::uint64_t bytes = 0;
  };
  enum class Answer {
    kHere,    // read it from what has come
    kWaits,   // Came or Over names the ticket
    kAbsent,  // the object is not being fetched
    kBeyond,  // the object has no such range
    kTooMany  // as many questions wait as may, of all nodes or of this one
  };

  struct Limits {
    std::size_t most = 64;         // questions that wait
    std::size_t most_of_one = 32;  // of one node, so that it does not take the places of all others
  };

  explicit RangeWaits(Limits limits) : limits_(limits) {}

  // A fetch of the object begins. Several may go on at the same time, for models that share their weights.
  void Expect(const std::string& object);
  [[nodiscard]] bool Expects(const std::string& object) const { return objects_.contains(object); }
  // `asker`: the node that asks.
  Answer Ask(Ticket ticket, const std::string& asker, const std::string& object, std::uint64_t offset,
             std::uint64_t length);
  // More of the object has come. Answers the questions that waited for it.
  std::vector<Ticket> Came(const std::string& object, Received received);
  // One of its fetches ended. Answers the questions that waited for the object, when it was the last fetch or `whole`.
  std::vector<Ticket> Over(const std::string& object, bool whole);
  // False: the question waits no more.
  bool GiveUp(Ticket ticket);
  // Null: nothing has come.
  [[nodiscard]] const Received* Of(const std::string& object) const;
  [[nodiscard]] std::size_t waiting() const { return tickets_.size(); }

 private:
  struct Object {
    std::size_t fetches = 0;
    Received received;
    std::multimap<std::uint64_t, Ticket> waiting;  // by the end of the range
  };

  struct Waiting {
    std::string asker;
    std::string object;
  };
  void Forget(Ticket ticket);

  const Limits limits_;
  std::map<std::string, Object> objects_;      // by digest
  std::map<Ticket, Waiting> tickets_;          // the questions that wait
  std::map<std::string, std::size_t> askers_;  // how many of them each node has
};

}  // namespace troupe::node
