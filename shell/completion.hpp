// COMPLETION: what may stand where the cursor is, from the table of verbs, the cluster's names and the file
// system.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "shell/session.hpp"
#include "shell/verb.hpp"

namespace troupe::shell {

struct Completion {
  std::size_t begin = 0;                // of the word in the line
  char quote = 0;                       // that is open
  std::vector<std::string> candidates;  // whole words, sorted; a folder ends in '/'

  // What all candidates begin with.
  [[nodiscard]] std::string CommonPrefix() const;
};

// Names of one kind that the cluster has; asked only for kinds that name something in it.
using NameSource = std::function<std::vector<std::string>(Kind)>;

// `line` ends at the cursor.
[[nodiscard]] Completion Complete(std::string_view line, const NameSource& names);

// Names from the cluster are kept for two seconds, so that a repeated Tab does not ask again. A name that
// cannot be had quickly is not offered: the prompt never hangs.
class ClusterNames {
 public:
  explicit ClusterNames(Session& session) : session_(session) {}
  std::vector<std::string> operator()(Kind kind);

 private:
  std::vector<std::string> Fetch(Kind kind);

  struct Known {
    Time at;
    std::vector<std::string> names;
  };
  Session& session_;
  std::map<Kind, Known> known_;
};

}  // namespace troupe::shell
