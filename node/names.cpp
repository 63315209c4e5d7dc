#include "node/names.hpp"

#include "node/runtimes/isolation.hpp"

namespace troupe::node {

ModelNumber Names::Model(std::string_view copy) {
  return models_.Of(copy, [&] {
    return ModelCopy{
        .text = std::string(copy), .digest = Digest(DigestOf(copy)), .key = std::string(KeyOf(copy))};
  });
}

}  // namespace troupe::node
