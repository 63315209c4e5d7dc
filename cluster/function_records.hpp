// FUNCTION RECORDS: the records of functions, by name and number of the version. A cluster has very many functions and few
// that anything happens to, and an open protobuf record takes four times the memory of its serialised bytes. So a table with
// a bound keeps only the functions open that were opened last. Each other function is folded: its records are bytes, and
// it is opened again when it is asked for. A function is either open or folded, never both.
//
//   a function:  open -> folded    FoldCold, when more functions are open than the bound
//                folded -> open    Find, Of
//
// One thread has a table with a bound. A table without one never folds, and many threads may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"

namespace troupe::cluster {

class FunctionRecords {
 public:
  static constexpr std::size_t kNoBound = std::numeric_limits<std::size_t>::max();
  using Versions = std::map<std::uint64_t, proto::FunctionRecord>;
  using See = absl::FunctionRef<void(const proto::FunctionRecord&)>;

  explicit FunctionRecords(std::size_t most_open = kNoBound) : most_open_(most_open) {}

  // Opens the function. Null: the table has none of this name. What it finds stays valid until the function is erased or
  // FoldCold is called.
  [[nodiscard]] const Versions* Find(const std::string& name) const;
  // The same, to be changed; a function that is new has no versions.
  Versions& Of(const std::string& name);
  void Erase(const std::string& name);
  // Folds those of the open functions that were opened first, until no more are open than the bound.
  void FoldCold();

  // These open nothing, and what they show is valid during the call only. All records in the order of names and versions;
  // those of one function, none when the table has no such function.
  void ForEach(See see) const;
  void ForEachOf(const std::string& name, See see) const;
  // Appends the records of the functions behind the name `after` to those of `update`, up to about so many bytes and at
  // least those of one function. Returns the name of the last, or an empty one when none is left behind it.
  std::string AddTo(proto::ClusterUpdate& update, const std::string& after, std::size_t bytes) const;
  // How many functions are folded.
  [[nodiscard]] std::size_t folded() const { return folded_.size(); }

 private:
  using Folded = std::map<std::string, std::string>;
  // The bytes are those of a ClusterUpdate that has only these functions, so that they can be appended to one.
  [[nodiscard]] static std::string Fold(Versions versions);
  static void Unfold(const std::string& bytes, proto::ClusterUpdate& records);
  Versions& Open(Folded::iterator folded) const;
  void NoteOpen(const std::string& name) const;
  // Calls one of both for each function behind the name `after`, in the order of names, until one returns false.
  void Walk(const std::string& after, absl::FunctionRef<bool(const std::string& name, const Versions&)> open,
            absl::FunctionRef<bool(const std::string& name, const std::string& bytes)> folded) const;

  std::size_t most_open_;
  mutable std::map<std::string, Versions> open_;
  mutable Folded folded_;
  mutable std::deque<std::string> opened_;  // names, in the order in which they were opened; some may be gone
};

}  // namespace troupe::cluster
