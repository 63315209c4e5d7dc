// ADDRESSES: where the weights of each model lie on every GPU of this node: virtual addresses, for devices
// that map memory (design: one address per function on every GPU, so that what remembers addresses fits
// anywhere). Ranges of different models never overlap. A model's place follows from its name as far as no
// other is in the way, so that a daemon that is started again chooses as the one before did.
#pragma once

#include <cstdint>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "base/units.hpp"
#include "node/names.hpp"

namespace troupe::node {

class Addresses {
 public:
  // Far from what a process has for itself, and 2^45 bytes long.
  static constexpr std::uint64_t kBegin = std::uint64_t{1} << 45;
  static constexpr std::uint64_t kEnd = std::uint64_t{1} << 46;
  // As large as the unit in which any GPU maps its memory: addresses cost nothing, and a GPU that cannot map at
  // an address puts the model elsewhere.
  static constexpr Bytes kUnit = MiB(64);

  // The model's address; the same until the model is forgotten, also when its size is told anew. Zero: there
  // is no room.
  std::uint64_t Of(const ModelNumber& model, Bytes size);
  void Forget(const ModelNumber& model);

 private:
  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  absl::flat_hash_map<ModelNumber, Place> places_;
  std::map<std::uint64_t, std::uint64_t> taken_;  // begin to end
};

}  // namespace troupe::node
