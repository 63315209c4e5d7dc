// MUTATIONS: one change of the registries at a time: validate against what is applied, commit, apply, tell the
// members, answer. A second change waits, so that no two are validated against the same past. Bounded.
//
// The part that a change belongs to has two functions for it: Validate, which completes its command or says why
// it cannot be made, and Answer, which comes last and exactly once.
#pragma once

#include <deque>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/records/after_commit.hpp"
#include "cluster/records/changes.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class Mutations {
 public:
  explicit Mutations(Parts& parts, std::size_t limit = 1024) : parts_(parts), limit_(limit) {}

  void Add(Mutation mutation);
  void On(const MutationStored& stored, const absl::Status& status);

 private:
  void Begin();
  void End(const absl::Status& status);
  [[nodiscard]] absl::StatusOr<Changes> Prepare(Mutation& mutation);
  void Apply(const Mutation& mutation);
  void Answer(Mutation& mutation, const absl::Status& status);

  Parts& parts_;
  const std::size_t limit_;
  std::deque<Mutation> queue_;  // the first is being stored
  bool busy_ = false;
  // Functions whose versions may have other parts of the requests on the disk than here: a change of these was not stored, or may
  // have been.
  std::set<std::string> unsure_;
};

}  // namespace troupe::cluster
