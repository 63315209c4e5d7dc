// NEAREST: the word that was meant, for messages. Pure.
#pragma once

#include <string>
#include <vector>

namespace troupe {

// "; did you mean 'gpu-memory'?" when one of `known` is `word` but for few slips (up to three, fewer in a
// short word): a letter too many, too few, another, or two exchanged. Else "".
[[nodiscard]] std::string DidYouMean(const std::string& word, const std::vector<std::string>& known);

}  // namespace troupe
