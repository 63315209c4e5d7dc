#include "gpu/import/open_dimensions.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "proto/open_dimension.hpp"

namespace troupe::gpu {

void OpenDimensions::AddInput(const proto::TensorSpec& spec, std::span<const std::string> names) {
  std::vector<int> dimensions;
  for (int i = 0; i < spec.shape_size(); ++i) {
    const std::string& name = names[static_cast<std::size_t>(i)];
    const bool open = spec.shape(i) < 0;
    const bool is_new = open && (name.empty() || by_name_.try_emplace(name, symbols_).second);
    dimensions.push_back(!open ? kFixed : is_new ? symbols_++ : by_name_.at(name));
  }
  inputs_[spec.name()] = std::move(dimensions);
}

std::vector<std::vector<int>> OpenDimensions::Larger() const {
  constexpr std::size_t kMostAlone = 16;
  constexpr std::size_t kMostInPairs = 6;
  // A symbol that stands only as the first dimension of inputs is a number of rows: no size depends on it.
  std::set<int> free;
  for (const auto& [input, dimensions] : inputs_)
    for (std::size_t i = 1; i < dimensions.size(); ++i)
      if (dimensions[i] != kFixed) free.insert(dimensions[i]);
  const std::vector<int> symbols(free.begin(), free.end());
  std::vector<std::vector<int>> sets;
  if (symbols.size() < 2) return sets;
  for (std::size_t i = 0; i < std::min(symbols.size(), kMostAlone); ++i) sets.push_back({symbols[i]});
  const std::size_t paired = std::min(symbols.size(), kMostInPairs);
  for (std::size_t i = 0; i < paired; ++i)
    for (std::size_t j = i + 1; j < paired; ++j) sets.push_back({symbols[i], symbols[j]});
  return sets;
}

std::vector<OpenDimensions::Trial> OpenDimensions::Trials() const {
  std::vector<Trial> trials;
  for (const std::int64_t size : {1, 2, 3, 4, 8, 16, 32, 64, 128, 224, 256, 512}) trials.push_back({size});
  for (const auto& larger : Larger())
    for (const std::int64_t size : {1, 8, 64}) trials.push_back({size, larger});
  return trials;
}

OpenDimensions::Sizes OpenDimensions::SizesOf(const Trial& trial) const {
  Sizes sizes(static_cast<std::size_t>(symbols_), trial.size);
  for (const int symbol : trial.twice) sizes[static_cast<std::size_t>(symbol)] = 2 * trial.size;
  return sizes;
}

proto::TensorSpec OpenDimensions::With(const Sizes& sizes, proto::TensorSpec input) const {
  const std::vector<int>& dimensions = inputs_.at(input.name());
  for (std::size_t i = 0; i < dimensions.size(); ++i)
    if (dimensions[i] != kFixed)
      input.set_shape(static_cast<int>(i), sizes[static_cast<std::size_t>(dimensions[i])]);
  return input;
}

proto::TensorSpec OpenDimensions::ForOneRow(const Sizes& sizes, const proto::TensorSpec& input) const {
  auto row = With(sizes, input);
  if (proto::LeadingIsOpen(input)) row.set_shape(0, 1);
  return row;
}

}  // namespace troupe::gpu
