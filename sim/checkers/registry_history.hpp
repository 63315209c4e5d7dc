// What clients saw of the registry of functions, and whether one registry that does one thing after the other
// explains all of it (Herlihy and Wing, 1990; searched as Wing and Gong, 1993, with the memory of Lowe,
// 2017). Knows nothing of the manager.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace troupe::sim {

struct RegistryOp {
  enum class Kind { kDeploy, kRemove, kShow, kList };
  // kDone: it did what it says. kRefused: deploy found it there, remove and show did not find it. kUnknown:
  // no answer, or an answer that leaves open whether it was done; it may be done at any time from `invoked`
  // on.
  enum class Result { kDone, kRefused, kUnknown };
  Kind kind = Kind::kShow;
  std::string key{};  // "name/version"; of a list: none
  Result result = Result::kUnknown;
  Time invoked{};
  Time returned = Time::max();     // of an unknown one: never
  std::set<std::string> listed{};  // by a list that is done: the keys that there are
};
[[nodiscard]] std::string ToString(const RegistryOp& op);

enum class Linearizable { kYes, kNo, kUndecided };
struct LinearizableVerdict {
  Linearizable verdict = Linearizable::kYes;
  std::string why{};  // of a no: the operation that cannot be placed, and the registry then
};

// Begins with an empty registry. At most 64 keys. Undecided after `limit` states of the search.
[[nodiscard]] LinearizableVerdict CheckLinearizable(const std::vector<RegistryOp>& history,
                                                    std::size_t limit = 200'000);

}  // namespace troupe::sim
