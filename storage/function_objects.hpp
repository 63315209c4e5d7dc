// The objects that a function's model consists of, looked for by name and size: what a damaged or half
// restored store lacks shows at the start, and not when the first request waits for it. Bytes are verified
// when they are read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "proto/function.pb.h"
#include "storage/model_repository.hpp"

namespace troupe::storage {

class StoredObjects {
 public:
  explicit StoredObjects(const ModelRepository& repository);
  // "weights 5f2c... (not there)", "model 1a... (120 bytes instead of 4,096)"; none: the model is whole.
  [[nodiscard]] std::vector<std::string> LackingFor(const proto::FunctionRecord& function) const;

 private:
  std::map<std::string, Bytes> sizes_;  // by digest
};

}  // namespace troupe::storage
