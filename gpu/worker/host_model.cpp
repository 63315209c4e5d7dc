#include "gpu/worker/host_model.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/worker/limits.hpp"
#include "proto/pack_target.hpp"

namespace troupe::gpu {

absl::Status CheckDigest(const std::string& digest) {
  constexpr std::size_t kLongest = 128;
  const bool printable =
      std::all_of(digest.begin(), digest.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (digest.empty() || digest.size() > kLongest || !printable) {
    return absl::InvalidArgumentError(absl::StrCat("a model's digest has 1 to ", kLongest,
                                                   " printable characters; the order's has ", digest.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<HostModel> ResolveHostCopy(const RegionPtr& region, const proto::HostCopy& copy) {
  TROUPE_RETURN_IF_ERROR(CheckDigest(copy.digest()));
  HostModel host;
  host.digest = copy.digest();
  host.region = region;
  if (Bytes(copy.model().length()) > WorkerLimits().model_description) {
    return absl::InvalidArgumentError(absl::StrCat("model ", copy.digest(), ": a description of ",
                                                   FormatBytes(Bytes(copy.model().length())),
                                                   " is too large"));
  }
  TROUPE_ASSIGN_OR_RETURN(host.model, region->Resolve(copy.model()));
  if (copy.weights().length() > 0) {
    TROUPE_ASSIGN_OR_RETURN(host.weights, region->Resolve(copy.weights()));
  }
  return host;
}

absl::StatusOr<proto::Model> ReadModel(const HostModel& host, const std::string& pack_target) {
  proto::Model model;
  if (!model.ParseFromArray(host.model.data(), static_cast<int>(host.model.size()))) {
    return absl::DataLossError(absl::StrCat("the host copy of model ", host.digest, " is not a model"));
  }
  if (!model.packed_for().empty() && !proto::IsPackedFor(model.packed_for(), pack_target)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "model ", host.digest, " is packed for ", model.packed_for(), ", this device needs ", pack_target));
  }
  if (model.weights_bytes() != host.weights.size()) {
    return absl::DataLossError(absl::StrCat("model ", host.digest, " has ", model.weights_bytes(),
                                            " bytes of weights, its host copy ", host.weights.size()));
  }
  for (const proto::Weight& weight : model.weights()) {
    if (weight.offset() > host.weights.size() || weight.length() > host.weights.size() - weight.offset()) {
      return absl::DataLossError(
          absl::StrCat("weight ", weight.name(), " of model ", host.digest, " leaves the weights"));
    }
  }
  return model;
}

}  // namespace troupe::gpu
