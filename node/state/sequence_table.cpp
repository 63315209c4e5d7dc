#include "node/state/sequence_table.hpp"

#include <iterator>

namespace troupe::node {

Sequence* SequenceTable::Find(const StateNumber& owner, const std::string& id) {
  const auto it = places_.find({owner, id});
  return it == places_.end() ? nullptr : &*it->second;
}

Sequence* SequenceTable::ByKey(const StateNumber& key) {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : &*it->second;
}

Sequence& SequenceTable::Add(const StateNumber& owner, const std::string& id, Time now) {
  cold_.push_back({.owner = owner, .id = id, .used = now});
  places_[{owner, id}] = std::prev(cold_.end());
  ++of_owners_[owner];
  return cold_.back();
}

void SequenceTable::Remove(Sequence& sequence) {
  if (sequence.key) by_key_.erase(sequence.key);
  const auto place = PlaceOf(sequence);
  const auto count = of_owners_.find(sequence.owner);
  if (--count->second == 0) of_owners_.erase(count);
  auto& list = sequence.key ? warm_ : cold_;
  places_.erase({sequence.owner, sequence.id});
  list.erase(place);
}

void SequenceTable::Use(Sequence& sequence, Time now) {
  sequence.used = now;
  auto& list = sequence.key ? warm_ : cold_;
  list.splice(list.end(), list, PlaceOf(sequence));
}

void SequenceTable::Warm(Sequence& sequence, StateNumber key) {
  const auto place = PlaceOf(sequence);
  sequence.key = std::move(key);
  by_key_[sequence.key] = place;
  warm_.splice(warm_.end(), cold_, place);
}

// Mostly behind all the others: it is the longest unused one that cools.
void SequenceTable::Cool(Sequence& sequence) {
  const auto place = PlaceOf(sequence);
  by_key_.erase(sequence.key);
  sequence.key = StateNumber();
  auto before = cold_.end();
  while (before != cold_.begin() && std::prev(before)->used > sequence.used) --before;
  cold_.splice(before, warm_, place);
}

std::size_t SequenceTable::CountOf(const StateNumber& owner) const {
  const auto it = of_owners_.find(owner);
  return it == of_owners_.end() ? 0 : it->second;
}

std::vector<Sequence*> SequenceTable::Of(const StateNumber& owner) {
  std::vector<Sequence*> of;
  for (auto* list : {&warm_, &cold_})
    for (auto& sequence : *list)
      if (sequence.owner == owner) of.push_back(&sequence);
  return of;
}

}  // namespace troupe::node
