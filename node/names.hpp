// NAMES: what has a number inside a node (node/numbers.hpp). A text gets its number where it comes in, once;
// it is looked up again only for what goes out: an effect, an event for the journal, a file, an answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "node/numbers.hpp"

namespace troupe::node {

// A model, however many copies it has here.
struct ModelDigest {
  std::string text{};
};
using DigestNumber = Number<ModelDigest>;

// A model's copy for one isolation key (node/runtimes/isolation.hpp).
struct ModelCopy {
  std::string text{};
  DigestNumber digest{};
  std::string key{};
};
using ModelNumber = Number<ModelCopy>;
// Its row in the tables of the scheduler (node/scheduling/model_rows.hpp).
using ModelId = std::uint32_t;
inline constexpr ModelId kNoModel = ~ModelId{0};

struct FunctionName {
  std::string text{};
};
using FunctionNumber = Number<FunctionName>;

// A function's state on the device, by cluster::StateKey.
struct StateName {
  std::string text{};
};
using StateNumber = Number<StateName>;

// All of one node.
class Names {
 public:
  [[nodiscard]] DigestNumber Digest(std::string_view text) { return digests_.Of(text); }
  [[nodiscard]] DigestNumber FindDigest(std::string_view text) const { return digests_.Find(text); }
  [[nodiscard]] ModelNumber Model(std::string_view copy);
  [[nodiscard]] ModelNumber FindModel(std::string_view copy) const { return models_.Find(copy); }
  [[nodiscard]] FunctionNumber Function(std::string_view name) { return functions_.Of(name); }
  [[nodiscard]] FunctionNumber FindFunction(std::string_view name) const { return functions_.Find(name); }
  [[nodiscard]] StateNumber State(std::string_view key) { return states_.Of(key); }
  [[nodiscard]] StateNumber FindState(std::string_view key) const { return states_.Find(key); }
  // How many texts have a number.
  [[nodiscard]] std::size_t size() const {
    return digests_.size() + models_.size() + functions_.size() + states_.size();
  }

 private:
  Numbers<ModelDigest> digests_;
  Numbers<ModelCopy> models_;  // which hold numbers of digests
  Numbers<FunctionName> functions_;
  Numbers<StateName> states_;
};

}  // namespace troupe::node
