// YAML DOCUMENT: the one document of a text. yaml-cpp reads the first of several and drops the others without a word.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

namespace troupe {

// Throws YAML::Exception, as yaml-cpp does, for text that is not YAML, and for a second document.
[[nodiscard]] inline YAML::Node LoadOneDocument(const std::string& text) {
  const std::vector<YAML::Node> documents = YAML::LoadAll(text);
  for (std::size_t i = 1; i < documents.size(); ++i)
    if (!documents[i].IsNull())
      throw YAML::ParserException(documents[i].Mark(), "a second document begins here, and one is read");
  return documents.empty() ? YAML::Node() : documents.front();
}

}  // namespace troupe
