#include "node/models/object_pull.hpp"

#include <algorithm>
#include <tuple>

#include "base/check.hpp"

namespace troupe::node {

namespace {

// An object without bytes is one range without bytes.
std::uint64_t RangesOf(std::uint64_t total, std::uint64_t range_bytes) {
  TROUPE_CHECK(range_bytes > 0, "a range of an object has bytes");
  return total == 0 ? 1 : (total - 1) / range_bytes + 1;
}

}  // namespace

ObjectPull::ObjectPull(std::uint64_t total, std::size_t nodes, Limits limits, std::size_t relays)
    : total_(total),
      limits_(limits),
      ranges_(RangesOf(total, limits.range_bytes)),
      relays_(relays),
      sources_(nodes + 1) {
  TROUPE_CHECK(relays <= nodes, "the relays are some of the nodes");
  for (auto& source : sources_) source.most = limits_.of_a_source;
  sources_[kManager].state = State::kUsable;
  window_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(ranges_, limits_.in_memory)));
}

void ObjectPull::Reached(Source node) {
  if (sources_[node].state == State::kAwaited) sources_[node].state = State::kUsable;
}

void ObjectPull::StopAwaiting() {
  for (auto& source : sources_)
    if (source.state == State::kAwaited) source.state = State::kLeftOut;
}

ObjectPull::Kind ObjectPull::KindOf(Source source) const {
  if (source == kManager) return Kind::kManager;
  return source <= relays_ ? Kind::kRelay : Kind::kHolder;
}

bool ObjectPull::AnyBefore(Kind kind) const {
  for (Source source = 0; source < sources_.size(); ++source)
    if (KindOf(source) < kind && sources_[source].state != State::kLeftOut && !sources_[source].late)
      return true;
  return false;
}

bool ObjectPull::MayAsk(Source source) const {
  const auto& peer = sources_[source];
  return peer.state == State::kUsable && peer.under_way < peer.most;
}

std::optional<ObjectPull::Source> ObjectPull::Choose(std::optional<Source> beside) const {
  std::optional<Source> best;
  const auto order = [this](Source source) {
    const auto& peer = sources_[source];
    return std::tuple(peer.late, KindOf(source), peer.under_way, peer.asked);
  };
  for (Source source = 0; source < sources_.size(); ++source) {
    if (source == beside || !MayAsk(source)) continue;
    // Beside a source that is slow any other one is asked.
    if (!beside && AnyBefore(KindOf(source))) continue;
    if (!best || order(source) < order(*best)) best = source;
  }
  return best;
}

std::optional<std::uint64_t> ObjectPull::FirstOpen() const {
  const auto open =
      std::ranges::find_if(window_, [](const Range& range) { return !range.here && range.tickets.empty(); });
  if (open == window_.end()) return std::nullopt;
  return kept_ + static_cast<std::uint64_t>(open - window_.begin());
}

std::optional<ObjectPull::Question> ObjectPull::Next() {
  if (questions_.size() >= limits_.under_way) return std::nullopt;
  if (const auto open = FirstOpen()) {
    const auto in_vain = At(*open).in_vain;
    auto source = in_vain ? Choose(in_vain) : std::nullopt;
    if (!source) source = Choose(std::nullopt);
    if (!source) return std::nullopt;
    return Ask(*open, *source);
  }
  if (!HeldUp()) return std::nullopt;
  const auto source = Choose(questions_.at(window_.front().tickets.front()).source);
  if (!source) return std::nullopt;
  return Ask(kept_, *source);
}

// All that may lie in memory is here but the first range, without which nothing of it can be kept. At the end of the
// object that holds up nothing but the end itself.
bool ObjectPull::HeldUp() const {
  if (window_.empty() || kept_ + window_.size() == ranges_) return false;
  const auto& first = window_.front();
  return !first.here && first.tickets.size() == 1 &&
         std::all_of(window_.begin() + 1, window_.end(), [](const Range& range) { return range.here; });
}

ObjectPull::Question ObjectPull::Ask(std::uint64_t range, Source source) {
  const auto ticket = next_ticket_++;
  questions_[ticket] = {source, range};
  At(range).tickets.push_back(ticket);
  ++sources_[source].under_way;
  ++sources_[source].asked;
  const auto offset = range * limits_.range_bytes;
  return {ticket, source, offset, std::min(limits_.range_bytes, total_ - offset)};
}

std::optional<ObjectPull::Asked> ObjectPull::Take(std::uint64_t ticket) {
  const auto it = questions_.find(ticket);
  if (it == questions_.end()) return std::nullopt;
  const auto asked = it->second;
  questions_.erase(it);
  --sources_[asked.source].under_way;
  if (asked.range >= kept_) std::erase(At(asked.range).tickets, ticket);
  return asked;
}

bool ObjectPull::Wants(std::uint64_t ticket) const {
  const auto it = questions_.find(ticket);
  return it != questions_.end() && !IsHere(it->second.range);
}

void ObjectPull::Beat() {
  for (Source source = 1; source <= relays_; ++source) {
    auto& relay = sources_[source];
    relay.late = relay.arrived < limits_.relayed && relay.under_way >= relay.most;
    relay.arrived = 0;
  }
}

bool ObjectPull::Arrived(std::uint64_t ticket) {
  const auto asked = Take(ticket);
  if (!asked) return false;
  auto& source = sources_[asked->source];
  ++source.arrived;
  source.warned_at.reset();
  if (IsHere(asked->range)) return false;
  At(asked->range).here = true;
  return true;
}

bool ObjectPull::Failed(std::uint64_t ticket, Failure failure) {
  const auto asked = Take(ticket);
  if (!asked) return false;
  auto& source = sources_[asked->source];
  if (failure == Failure::kBusy && source.under_way > 0) {
    source.most = source.under_way;
  } else if (failure == Failure::kLater && (!source.warned_at || ticket < *source.warned_at)) {
    source.late = true;
    if (asked->range >= kept_) At(asked->range).in_vain = asked->source;
    if (!source.warned_at) source.warned_at = next_ticket_;
  } else {
    LeaveOut(asked->source);
  }
  return true;
}

void ObjectPull::LeaveOut(Source source) {
  sources_[source].state = State::kLeftOut;
  std::vector<std::uint64_t> asked;
  for (const auto& [ticket, question] : questions_)
    if (question.source == source) asked.push_back(ticket);
  for (const auto ticket : asked) static_cast<void>(Take(ticket));
}

std::optional<std::uint64_t> ObjectPull::FirstHere() const {
  if (window_.empty() || !window_.front().here) return std::nullopt;
  return kept_ * limits_.range_bytes;
}

void ObjectPull::Kept() {
  TROUPE_CHECK(FirstHere().has_value(), "the first range that is not kept was here");
  // A second question for it may be under way still: its answer is not needed.
  window_.pop_front();
  ++kept_;
  if (kept_ + window_.size() < ranges_) window_.emplace_back();
}

bool ObjectPull::stranded() const {
  return !done() &&
         std::ranges::all_of(sources_, [](const Peer& peer) { return peer.state == State::kLeftOut; });
}

}  // namespace troupe::node
