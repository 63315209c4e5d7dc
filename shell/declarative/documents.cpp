#include "shell/declarative/documents.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.hpp"
#include "shell/console.hpp"
#include "shell/inputs/files.hpp"
#include "shell/inputs/tensor_values.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

constexpr char kStandardInput[] = "-";

absl::StatusOr<std::string> ReadConsole(Console& console, Bytes most) {
  std::string text;
  std::string line;
  while (console.ReadLine(line)) {
    absl::StrAppend(&text, line, "\n");
    if (Bytes(text.size()) > most)
      return absl::InvalidArgumentError(
          Cat("standard input has more than ", FormatBytes(most), ", and no more are taken"));
  }
  return text;
}

absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder, std::size_t most) {
  std::error_code error;
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto path = at->path().string();
    if (absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml")) files.push_back(path);
    if (files.size() > most)
      return absl::InvalidArgumentError(Cat("'", folder, "' has more than ", most, " YAML files"));
  }
  if (error) return absl::InvalidArgumentError(Cat("'", folder, "' cannot be read: ", error.message()));
  if (files.empty()) return absl::InvalidArgumentError(Cat("'", folder, "' has no *.yaml and no *.yml"));
  std::sort(files.begin(), files.end());
  return files;
}

// Whether only comments stand in it.
bool SaysNothing(std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = absl::StripLeadingAsciiWhitespace(ForAbsl(text.substr(0, end)));
    if (!line.empty() && line.front() != '#') return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

bool Divides(std::string_view line) {
  return line.starts_with("---") &&
         (line.size() == 3 || absl::ascii_isspace(static_cast<unsigned char>(line[3])));
}

absl::Status Cut(std::string_view text, const Document& head, std::size_t most, std::vector<Document>& out) {
  Document document = head;
  int number = 0;
  const auto finish = [&]() -> absl::Status {
    if (SaysNothing(document.text)) return absl::OkStatus();
    if (out.size() >= most)
      return absl::InvalidArgumentError(Cat(head.file, ":", document.first_line, ": there are more than ",
                                            most, " documents, and no more are taken"));
    out.push_back(std::move(document));
    return absl::OkStatus();
  };
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (Divides(line)) {
      TROUPE_RETURN_IF_ERROR(finish());
      document = head;
      document.first_line = number;
      line.replace(0, 3, "   ");
      // What stands behind the dashes is a document of its own only when it says something.
      if (SaysNothing(line)) line.clear();
    }
    absl::StrAppend(&document.text, line, "\n");
  }
  return finish();
}

absl::Status AddFile(const std::string& path, const DocumentLimits& limits, std::vector<Document>& out) {
  TROUPE_ASSIGN_OR_RETURN(const auto text, ReadFile(path, limits.file));
  // Bytes that are not valid UTF-8 would not fit into a message.
  if (MakeUtf8(text) != text) return absl::InvalidArgumentError(Cat("'", path, "' is not valid UTF-8 text"));
  Document head{.file = path, .folder = std::filesystem::path(path).parent_path().string()};
  const auto before = out.size();
  TROUPE_RETURN_IF_ERROR(Cut(text, head, limits.documents, out));
  if (out.size() == before) return absl::InvalidArgumentError(Cat("'", path, "' has no document"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Document>> ReadDocuments(const std::string& name, Console& console,
                                                    const DocumentLimits& limits) {
  std::vector<Document> documents;
  if (name == kStandardInput) {
    TROUPE_ASSIGN_OR_RETURN(const auto text, ReadConsole(console, limits.file));
    if (MakeUtf8(text) != text) return absl::InvalidArgumentError("standard input is not valid UTF-8 text");
    TROUPE_RETURN_IF_ERROR(Cut(text, {.file = name}, limits.documents, documents));
    if (documents.empty()) return absl::InvalidArgumentError("standard input has no document");
    return documents;
  }
  std::error_code error;
  if (!std::filesystem::is_directory(name, error)) {
    TROUPE_RETURN_IF_ERROR(AddFile(name, limits, documents));
    return documents;
  }
  TROUPE_ASSIGN_OR_RETURN(const auto files, FilesIn(name, limits.files));
  for (const auto& file : files) TROUPE_RETURN_IF_ERROR(AddFile(file, limits, documents));
  return documents;
}

}  // namespace troupe::shell
