// OPEN DIMENSIONS: which dimensions of a model's inputs are open, and which of them the file takes for one size by giving them
// one name. In some models sizes depend on each other: a mask is as long as the past and the new tokens together. The importer
// looks for sizes that such a model accepts, and tries the choices that Trials lists.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/tensor.pb.h"

namespace troupe::gpu {

class OpenDimensions {
 public:
  // Sizes by symbol: a symbol is one size, of all dimensions of one name or of one dimension without a name.
  using Sizes = std::vector<std::int64_t>;
  struct Trial {
    std::int64_t size = 1;     // of all symbols
    std::vector<int> twice{};  // but of these, which are twice as large
  };

  // The next input; `names`: of all its dimensions, in order, of which those of open ones count; "": it has none.
  void AddInput(const proto::TensorSpec& spec, std::span<const std::string> names);

  [[nodiscard]] int symbols() const { return symbols_; }
  // What to try, the likeliest first: all symbols alike, from 1 to 512; then some of them twice as large as the others, for
  // sums of two others. About a hundred at most, whatever the model has.
  [[nodiscard]] std::vector<Trial> Trials() const;
  [[nodiscard]] Sizes SizesOf(const Trial& trial) const;
  // The input, which was added, with these sizes.
  [[nodiscard]] proto::TensorSpec With(const Sizes& sizes, proto::TensorSpec input) const;
  // The same, for one row of the model if its first dimension is open.
  [[nodiscard]] proto::TensorSpec ForOneRow(const Sizes& sizes, const proto::TensorSpec& input) const;

 private:
  static constexpr int kFixed = -1;

  // Sets of symbols that may be larger than the others.
  [[nodiscard]] std::vector<std::vector<int>> Larger() const;

  int symbols_ = 0;
  absl::flat_hash_map<std::string, int> by_name_;
  absl::flat_hash_map<std::string, std::vector<int>>
      inputs_;  // by input; for each dimension the symbol, or kFixed
};

}  // namespace troupe::gpu
