#include "base/nearest.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr std::size_t kMostSlips = 3;

std::size_t Slips(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      auto& here = least[i][j];
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      here =
          std::min({least[i - 1][j] + 1, least[i][j - 1] + 1, least[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        here = std::min(here, least[i - 2][j - 2] + 1);
    }
  }
  return least[a.size()][b.size()];
}

}  // namespace

std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  std::size_t fewest = std::min(kMostSlips, (word.size() + 1) / 3) + 1;
  const std::string* nearest = nullptr;
  for (const auto& one : known) {
    // A word that is much longer or shorter is another one; nor is a long one from outside compared.
    if (std::max(one.size(), word.size()) - std::min(one.size(), word.size()) > kMostSlips) continue;
    const auto slips = Slips(word, one);
    if (slips >= fewest) continue;
    fewest = slips;
    nearest = &one;
  }
  return nearest == nullptr ? "" : absl::StrCat("; did you mean '", *nearest, "'?");
}

}  // namespace troupe
