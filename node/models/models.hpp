// MODELS: the models of this node, from the wish to adopt one to its end here.
//
//   asked for -(its host copy is placed)-> described, its plan prepared -> adopted: requests may come
//   asked for, adopted -> disowned
//
// A model has a copy for each isolation key that uses it (node/runtimes/isolation.hpp); `copy` is its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node/events.hpp"
#include "node/models/addresses.hpp"
#include "node/models/held_models.hpp"

namespace troupe::node {

struct Parts;

class Models {
 public:
  explicit Models(Parts& parts) : parts_(parts) {}

  void On(const AdoptionAsked& event);
  void On(const ModelDisowned& event);

  // The copy's bytes lie in the host region for the first time.
  void Placed(const std::string& copy);
  // From then on requests may come for it.
  void Describe(const std::string& copy, Bytes weights, Bytes activation);
  void Adopted(const std::string& copy);
  void AdoptFailed(const std::string& copy, const absl::Status& status);
  void Disown(const std::string& copy);

  // The copy for the key of this request. NotFound: this node has not heard of its function.
  [[nodiscard]] absl::StatusOr<std::string> CopyFor(const proto::SubmitRequest& request);
  // Null: this node has not heard of it.
  [[nodiscard]] const proto::FunctionRecord* FunctionOf(const proto::SubmitRequest& request) const;
  // For functions that no workflow calls.
  [[nodiscard]] std::string CopyOf(const proto::FunctionRecord& function) const;

  // An order names the copy, and (`reads`) a worker may read its bytes, from Begin to End.
  void BeginUse(const std::string& copy, bool reads);
  void EndUse(const std::string& copy, bool reads);

  // Null when it is not held.
  [[nodiscard]] HeldModel* Find(const std::string& copy) { return held_.Find(copy); }
  [[nodiscard]] const std::string& PackedDigest(const std::string& copy) const {
    return held_.PackedDigest(copy);
  }
  // Where its weights lie on every GPU.
  [[nodiscard]] std::uint64_t AddressOf(const std::string& copy);
  [[nodiscard]] HeldModels& held() { return held_; }
  [[nodiscard]] const HeldModels& held() const { return held_; }

 private:
  void AnswerAll(const std::vector<Ask>& asks, const std::string& copy, const absl::Status& status);
  void FindResident(const std::string& copy, const std::string& packed);
  void OpenCopy(const std::string& copy, const proto::FunctionRecord& function);

  Parts& parts_;
  HeldModels held_;
  Addresses addresses_;
};

}  // namespace troupe::node
