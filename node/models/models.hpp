// MODELS: the models of this node, from the wish to adopt one to its end here.
//
//   asked for -(its host copy is placed)-> described, its plan prepared -> adopted: requests may come
//   asked for, adopted -> disowned
//
// A model has a copy for each isolation key that uses it (node/runtimes/isolation.hpp); `copy` is its number.
#pragma once

#include <cstdint>
#include <optional>
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
  void Placed(const ModelNumber& copy);
  // From then on requests may come for it.
  void Describe(const ModelNumber& copy, Bytes weights, std::optional<Bytes> activation);
  void Adopted(const ModelNumber& copy);
  void AdoptFailed(const ModelNumber& copy, const absl::Status& status);
  void Disown(const ModelNumber& copy);

  // The copy for the key of this request. NotFound: this node has not heard of its function.
  [[nodiscard]] absl::StatusOr<ModelNumber> CopyFor(const proto::SubmitRequest& request);
  // Null: this node has not heard of it.
  [[nodiscard]] const proto::FunctionRecord* FunctionOf(const proto::SubmitRequest& request) const;
  // For functions that no workflow calls.
  [[nodiscard]] ModelNumber CopyOf(const proto::FunctionRecord& function) const;

  // An order names the copy, and (`reads`) a worker may read its bytes, from Begin to End.
  void BeginUse(const ModelNumber& copy, bool reads);
  void EndUse(const ModelNumber& copy, bool reads);

  // Null when it is not held.
  [[nodiscard]] HeldModel* Find(const ModelNumber& copy) { return held_.Find(copy); }
  [[nodiscard]] const std::string& PackedDigest(const ModelNumber& copy) const {
    return held_.PackedDigest(copy);
  }
  // Where its weights lie on every GPU.
  [[nodiscard]] std::uint64_t AddressOf(const ModelNumber& copy);
  [[nodiscard]] HeldModels& held() { return held_; }
  [[nodiscard]] const HeldModels& held() const { return held_; }

 private:
  void AdoptStates(const AdoptionAsked& event);
  void AnswerAll(const std::vector<Ask>& asks, const ModelNumber& copy, const absl::Status& status);
  void FindResident(const ModelNumber& copy, const std::string& packed);
  void OpenCopy(const ModelNumber& copy, const proto::FunctionRecord& function);

  Parts& parts_;
  HeldModels held_;
  Addresses addresses_;
};

}  // namespace troupe::node
