// NAMES: numbers for names (digests of models, functions), so that a decision looks up a table instead of
// comparing strings. Numbers are small and are used again: a table by number is as long as there were names
// at a time. Each owner forgets the names that nothing of its own refers to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"

namespace troupe::node {

using NameId = std::uint32_t;
inline constexpr NameId kNoName = ~NameId{0};
using ModelId = NameId;
using FunctionId = NameId;

class Names {
 public:
  // The name's number; a new name gets one.
  NameId Intern(const std::string& name);
  // kNoName for a name that has none.
  [[nodiscard]] NameId Find(const std::string& name) const;
  [[nodiscard]] const std::string& at(NameId id) const { return *names_[id]; }
  // Its number may be another name's from now on.
  void Forget(NameId id);
  // How many names have a number.
  [[nodiscard]] std::size_t size() const { return ids_.size(); }
  // Above every number so far.
  [[nodiscard]] std::size_t end() const { return names_.size(); }

 private:
  absl::node_hash_map<std::string, NameId> ids_;
  std::vector<const std::string*> names_;  // of ids_; null: the number is free
  std::vector<NameId> free_;
};

}  // namespace troupe::node
