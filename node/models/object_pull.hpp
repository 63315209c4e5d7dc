// OBJECT PULL: from whom a node asks which range of an object next, when other nodes have it too, or are fetching it.
//
//   a range:   open -> asked -> here -> kept       in the order of the object: the bytes before it are kept first
//              asked -> open                       its source failed or the question was dropped, and no other source has
//                                                  been asked for it
//   a source:  awaited -> usable -> left out       it does not have the object, sent wrong bytes, or is gone
//              awaited -> left out                 it was not reached in time
//   a relay:   in time <-> late                    it sent too little since the last beat, or let a question wait in vain;
//              late -> left out                    it did so again, and sent nothing in between
//
// First of all relays are asked: nodes that fetch the object themselves and hand on what has come. Nodes that have all of it
// are asked only while no relay is in time or awaited, and the manager, which has every object, only while no node is. Of
// several of a kind the one with the fewest ranges under way is asked. When the ranges that may lie in memory are all here
// or asked for, the first that is missing is asked of a second source too, so that one slow source holds up no other. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace troupe::node {

class ObjectPull {
 public:
  struct Limits {
    std::uint64_t range_bytes = 4u << 20;
    std::size_t under_way = 8;  // ranges that were asked for and have not come, of all sources
    // Of one source. They share its link, so that a node that follows this one waits for all of them before the first one is here.
    std::size_t of_a_source = 3;
    std::size_t relayed =
        12;  // ranges that a relay has to send between two beats, if it is asked for as many as it may be
    std::size_t in_memory = 16;  // ranges from the first that is not kept on: what lies in memory is bounded
  };
  // The manager is source 0, the other nodes are 1 to `nodes`, and the first of these are the relays.
  using Source = std::size_t;
  static constexpr Source kManager = 0;
  struct Question {
    std::uint64_t ticket = 0;
    Source source = kManager;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  enum class Failure {
    kLater,  // the range has not come to it yet, and it may do so later
    kBusy,  // it answers too many others: it is asked for less, and left out when it had nothing else under way
    kGone,  // it does not have the object, cannot be reached, or is silent
    kWrong  // its bytes are not those of the object
  };

  // `total`: bytes of the object, as the manager says.
  ObjectPull(std::uint64_t total, std::size_t nodes, Limits limits, std::size_t relays = 0);

  // The node can be asked from now on.
  void Reached(Source node);
  // Nodes that were not reached are not waited for any more.
  void StopAwaiting();
  // What to ask next; nothing: something has to come first. Ask it until there is nothing.
  [[nodiscard]] std::optional<Question> Next();
  // Judges the relays by what they sent since the last beat.
  void Beat();
  // The answer to this question is still needed.
  [[nodiscard]] bool Wants(std::uint64_t ticket) const;
  // The range came and is right. False: it is not needed, since another source was faster or its source was left
  // out.
  bool Arrived(std::uint64_t ticket);
  // The same of a question that failed.
  bool Failed(std::uint64_t ticket, Failure failure);
  // The question is as if it had not been asked; its source is not to blame.
  void Drop(std::uint64_t ticket) { static_cast<void>(Take(ticket)); }
  // What was asked of this source is asked of others, and nothing more is asked of it.
  void LeaveOut(Source source);
  // The offset of the first range that is not kept, when it is here.
  [[nodiscard]] std::optional<std::uint64_t> FirstHere() const;
  // That range is kept.
  void Kept();

  [[nodiscard]] bool done() const { return kept_ == ranges_; }
  // No source is left that could be asked.
  [[nodiscard]] bool stranded() const;
  [[nodiscard]] std::uint64_t total() const { return total_; }
  [[nodiscard]] std::size_t under_way() const { return questions_.size(); }
  [[nodiscard]] std::size_t under_way_of(Source source) const { return sources_[source].under_way; }
  [[nodiscard]] bool left_out(Source source) const { return sources_[source].state == State::kLeftOut; }
  [[nodiscard]] bool relays(Source source) const { return KindOf(source) == Kind::kRelay; }

 private:
  enum class State { kAwaited, kUsable, kLeftOut };
  enum class Kind { kRelay, kHolder, kManager };  // in the order in which they are asked
  struct Peer {
    State state = State::kAwaited;
    std::size_t under_way = 0;
    std::size_t most = 0;     // that may be under way
    std::uint64_t asked = 0;  // in all
    std::size_t arrived = 0;  // since the last beat
    bool late = false;
    // Of the first question that is asked after one waited in vain; nothing: none did since something arrived.
    std::optional<std::uint64_t> warned_at;
  };
  struct Range {
    bool here = false;
    std::optional<Source> in_vain;       // where a question for it waited
    std::vector<std::uint64_t> tickets;  // under way
  };
  struct Asked {
    Source source = kManager;
    std::uint64_t range = 0;
  };

  [[nodiscard]] Range& At(std::uint64_t range) { return window_[static_cast<std::size_t>(range - kept_)]; }
  [[nodiscard]] bool IsHere(std::uint64_t range) const {
    return range < kept_ || window_[static_cast<std::size_t>(range - kept_)].here;
  }
  [[nodiscard]] Kind KindOf(Source source) const;
  // Some source that is asked before those of this kind can be asked, or may be soon.
  [[nodiscard]] bool AnyBefore(Kind kind) const;
  [[nodiscard]] bool MayAsk(Source source) const;
  // The one that is to be asked next; nothing: none may be asked. `beside`: not this one.
  [[nodiscard]] std::optional<Source> Choose(std::optional<Source> beside) const;
  [[nodiscard]] std::optional<std::uint64_t> FirstOpen() const;
  [[nodiscard]] bool HeldUp() const;
  Question Ask(std::uint64_t range, Source source);
  // Forgets the question; nothing: it was forgotten before.
  std::optional<Asked> Take(std::uint64_t ticket);

  const std::uint64_t total_;
  const Limits limits_;
  const std::uint64_t ranges_;
  const std::size_t relays_;
  std::uint64_t kept_ = 0;    // ranges, from the first on
  std::deque<Range> window_;  // from the first that is not kept on
  std::vector<Peer> sources_;
  std::map<std::uint64_t, Asked> questions_;  // by ticket
  std::uint64_t next_ticket_ = 1;
};

}  // namespace troupe::node
