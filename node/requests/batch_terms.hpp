// BATCH TERMS: which requests of which functions may be answered by one run. A function's requests can when
// the leading dimension of all its inputs and outputs is open, the others are fixed, it keeps no state, and it
// declares no run limit, which is a promise about runs of one request. The rows of its tensors are taken to be
// independent of each other; a function of which that is not true declares `max_batch` 1.
#pragma once

#include <cstdint>

#include "node/request.hpp"
#include "node/scheduling/policies/batching_policy.hpp"
#include "proto/function.pb.h"
#include "proto/request.pb.h"

namespace troupe::node {

// The most rows of one of its runs; 1: its requests are not joined.
[[nodiscard]] std::uint32_t MostRows(const proto::FunctionRecord& function, const BatchingRules& rules);
// Of one request of the function. Without a kind when its inputs are not as the function declares them.
[[nodiscard]] BatchTerms BatchTermsOf(const proto::FunctionRecord& function,
                                      const proto::SubmitRequest& request, const BatchingRules& rules);

}  // namespace troupe::node
