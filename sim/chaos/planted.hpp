// Errors that the harness makes on purpose, so that it is seen that the checkers find them. None is in the
// product: the harness changes what goes over the network, what lies on a disk or a GPU, what a client hears.
#pragma once

#include <array>
#include <string_view>

#include "absl/status/statusor.h"

namespace troupe::sim {

enum class Planted {
  kNone,
  kDropRecord,        // a record that was acknowledged is not kept
  kStaleEpoch,        // nodes do not see that a request is for their life before
  kDoubleAnswer,      // a request is answered twice
  kHiddenFunction,    // a list lacks a function
  kSecondRun,         // a run's key that comes again begins another run
  kForgottenStep,     // gateways are not told of the steps that are committed
  kIgnoredCondition,  // a step of a workflow runs though its client said that it is to be skipped
  kSmallGpu,          // GPUs have less room than is said
  kLostState,         // states lose a run
  kSharedState,       // a write-back takes the states of all functions of its model
  kForgottenImages,   // a node that takes over states is told of no image
  kStaleImage,        // nodes drop the copies of states that they are to keep
  kForgottenKey,      // answers are not kept by their keys
  kCountedTwice,      // gateways count each request twice
  kForgottenPages,  // a node's daemon that starts again does not know what it has read of its workers' counts
  kUncutRun,        // runs go on beyond their limit
  kUnchargedRun,    // workers charge no run to its function's quota
  kSwappedMembers,  // two requests of a batch get each other's outputs
  kTrustedWeights,  // weights that a dead worker has spoiled are used as they are
  kTrustedRanges,   // ranges of models that other nodes send are kept as they are
  kForgottenUpdate,  // how a function shares its GPUs is not what the operator was told
  kDisobeyedOwner,   // a node obeys none of the parts of GPUs that functions own
  kUnreleased,       // workers keep the tensors that they are told to release
  kSpoiledCopy,      // tensors that come over the link from another GPU have other bytes there
  kSwappedParts,     // workers put an input's parts together in the wrong order
  kForgottenWakeup,  // nodes do not hear when the next decision that they wanted is due
  kSwappedRuntimes,  // workers take themselves for those of other functions
  kPinnedVersion,    // requests that name no version all go to the first one
  kUnevenVersions,   // now and then one of them does, whatever its turn is
  kKeptState,        // nodes take a function that is deployed again for the deployment before
  kTornStages,       // a list lacks a stage of a model
  kUnmended,         // a fault stays
};
struct PlantedName {
  Planted planted = Planted::kNone;
  std::string_view name{};
  std::string_view checker{};  // that is there to find it
};
[[nodiscard]] const std::array<PlantedName, 32>& AllPlanted();
// InvalidArgument for an unknown name. "" and "none": kNone.
[[nodiscard]] absl::StatusOr<Planted> FindPlanted(std::string_view name);

}  // namespace troupe::sim
