#include "sim/experiments/model_table.hpp"

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace troupe::sim {

absl::StatusOr<std::vector<ModelSpec>> ReadModelTable(const std::string& path) {
  constexpr const char* kHeader = "model,occupation_mb,loading_s,inference_s_batch32";
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no table ", path, " that can be read"));
  const auto wrong = [&](std::size_t line, const std::string& expected) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": expected ", expected));
  };
  std::string text;
  if (!std::getline(file, text) || absl::StripAsciiWhitespace(text) != kHeader) return wrong(1, kHeader);
  std::vector<ModelSpec> models;
  for (std::size_t line = 2; std::getline(file, text); ++line) {
    const std::vector<std::string> cells = absl::StrSplit(std::string(absl::StripAsciiWhitespace(text)), ',');
    double megabytes = 0;
    double load = 0;
    double run = 0;
    if (cells.size() != 4 || cells[0].empty() || !absl::SimpleAtod(cells[1], &megabytes) ||
        !absl::SimpleAtod(cells[2], &load) || !absl::SimpleAtod(cells[3], &run) || !(megabytes > 0) ||
        !(load > 0) || !(run > 0))
      return wrong(line, "a name and three numbers that are more than nothing");
    models.push_back({.name = cells[0],
                      .memory = MiB(static_cast<std::uint64_t>(megabytes)),
                      .times = {.run = FromSeconds(run), .load = FromSeconds(load), .swapped = {}},
                      .deadline = {}});
  }
  if (models.empty()) return wrong(2, "a model a line");
  return models;
}

}  // namespace troupe::sim
