// YAML DOCUMENT: the one document of a text. yaml-cpp reads the first of several and drops the others without a word.
#pragma once

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <sstream>
#include <string>

namespace troupe {

// Where the content of a document begins; an empty one has none.
class DocumentBegin final : public YAML::EventHandler {
 public:
  [[nodiscard]] const std::optional<YAML::Mark>& mark() const { return mark_; }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { Note(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {
    Note(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    Note(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    Note(mark);
  }
  void OnMapEnd() override {}

 private:
  void Note(const YAML::Mark& mark) {
    if (!mark_) mark_ = mark;
  }

  std::optional<YAML::Mark> mark_;
};

// Throws YAML::Exception, as yaml-cpp does, for text that is not YAML, and for a second document. Empty documents behind the first
// one are none.
[[nodiscard]] inline YAML::Node LoadOneDocument(const std::string& text) {
  // yaml-cpp may hand out the end of a text again and again as another document: to read all of them has no end then.
  constexpr int kMostDocuments = 1000;
  YAML::Node first = YAML::Load(text);
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  for (int number = 1; number <= kMostDocuments; ++number) {
    DocumentBegin begin;
    if (!parser.HandleNextDocument(begin)) return first;
    if (number > 1 && begin.mark())
      throw YAML::ParserException(*begin.mark(), "a second document begins here, and one is read");
  }
  throw YAML::ParserException(YAML::Mark::null_mark(), "it has more than 1,000 documents, and one is read");
}

}  // namespace troupe
