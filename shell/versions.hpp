// VERSIONS of one function or workflow, as the cluster listed them: which one a command without --version
// means, and which one answers requests that name none. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/admin.pb.h"

namespace troupe::shell {

class Versions {
 public:
  // Of the functions (else workflows) of a reply; all of one name.
  [[nodiscard]] static Versions Of(const proto::AdminReply& reply);

  // "": there is none.
  [[nodiscard]] std::string Newest() const;
  // The newest that is loaded; while versions have shares of the requests, the loaded one with the largest. "": none is.
  [[nodiscard]] std::string Answering() const;

  // What will be when the cluster has done so.
  [[nodiscard]] Versions Without(const std::string& version) const;
  [[nodiscard]] Versions WithLoaded(const std::string& version, bool loaded) const;

  // "; version 1 answers now", "; no version is left": what a change made of `before`.
  [[nodiscard]] std::string Since(const Versions& before) const;

 private:
  std::map<std::uint64_t, bool> loaded_;
  std::map<std::uint64_t, std::uint32_t> shares_;  // in percent; of those that have one
};

}  // namespace troupe::shell
