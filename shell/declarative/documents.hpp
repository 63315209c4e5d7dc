// DOCUMENTS: the YAML files that a command names, cut into documents. Bounded: nothing from a file is parsed here.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::shell {

class Console;

struct Document {
  std::string file{};    // the name that the user gave; "-": standard input
  std::string folder{};  // relative paths in the document begin here
  int first_line = 1;    // the line of the file in which `text` begins
  std::string text{};
};

struct DocumentLimits {
  Bytes file = MiB(4);
  std::size_t files = 1000;      // of a directory
  std::size_t documents = 1000;  // in all
};

// `name`: a file, a directory (its *.yaml and *.yml, in the order of their names, without those of its
// subdirectories), or "-" for the console's input. Documents are divided by lines that begin with "---"; empty ones
// are left out. InvalidArgument names the file.
[[nodiscard]] absl::StatusOr<std::vector<Document>> ReadDocuments(const std::string& name, Console& console,
                                                                  const DocumentLimits& limits = {});

}  // namespace troupe::shell
