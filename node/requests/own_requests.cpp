#include "node/requests/own_requests.hpp"

#include <algorithm>
#include <string>

#include "proto/element_size.hpp"

namespace troupe::node {

namespace {

constexpr std::size_t kInMessage = std::size_t{64} << 10;

}  // namespace

bool AddZeros(const proto::TensorSpec& spec, std::size_t most, Tensors& inputs) {
  std::size_t bytes = proto::ElementSize(spec.type());
  if (bytes == 0) return false;
  for (const auto size : spec.shape()) {
    if (size < 0 || (size > 0 && bytes > most / static_cast<std::size_t>(size))) return false;
    bytes *= static_cast<std::size_t>(size);
  }
  auto& input = *inputs.Add();
  *input.mutable_spec() = spec;
  if (bytes <= kInMessage) input.mutable_data()->set_inlined(std::string(bytes, 0));
  return true;
}

bool NeedArena(const Tensors& inputs) {
  return std::ranges::any_of(inputs, [](const auto& input) { return !input.has_data(); });
}

}  // namespace troupe::node
