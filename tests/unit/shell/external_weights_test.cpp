#include "shell/inputs/external_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/tar.hpp"
#include "shell/inputs/files.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;

// A field with a length, short enough for one byte of it.
std::string Delimited(int number, const std::string& content) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(content.size()) + content;
}
std::string Number(int number, char value) {
  return std::string(1, static_cast<char>(number << 3)) + value;
}
std::string Entry(const std::string& key, const std::string& value) {
  return Delimited(13, Delimited(1, key) + Delimited(2, value));
}
std::string Name(const std::string& name) {
  return Number(1, 4) + Delimited(8, name);
}
// An initialiser whose data lie elsewhere.
std::string Away(const std::string& entries) {
  return Name("w") + entries + Number(14, 1);
}
std::string Model(const std::string& tensor) {
  return Number(1, 8) + Delimited(7, Delimited(2, "graph") + Delimited(5, tensor) + Delimited(5, Name("z"))) +
         Number(5, 1);
}

class ExternalWeights : public testing::Test {
 protected:
  ExternalWeights() {
    std::filesystem::create_directory(Path("model"));
    std::filesystem::create_directory(Path("model/parts"));
    EXPECT_TRUE(WriteFile(Path("model/weights"), "0123456789").ok());
    EXPECT_TRUE(WriteFile(Path("model/parts/more"), "abcd").ok());
    EXPECT_TRUE(WriteFile(Path("secret"), "secret").ok());
    std::filesystem::create_symlink(Path("secret"), Path("model/link"));
    std::filesystem::create_symlink(folder_.path(), Path("model/up"));
  }
  [[nodiscard]] std::string Path(const std::string& name) const { return folder_ / name; }

  [[nodiscard]] absl::StatusOr<std::shared_ptr<const actors::UploadSource>> Open(const std::string& model,
                                                                                 Bytes most = MiB(1)) const {
    EXPECT_TRUE(WriteFile(Path("model/model.onnx"), model).ok());
    return OpenModel(Path("model/model.onnx"), KiB(1), most);
  }
  [[nodiscard]] std::string Sent(const std::string& model) const {
    const auto source = Open(model);
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? *(*source)->Read(0, (*source)->size()) : "";
  }
  // What the archive has, by name.
  [[nodiscard]] std::map<std::string, std::string> Files(const std::string& model) const {
    const std::string archive = Sent(model);
    const auto files = ListTar(std::as_bytes(std::span(archive)), 100);
    EXPECT_TRUE(files.ok()) << files.status();
    std::map<std::string, std::string> content;
    if (files.ok())
      for (const auto& file : *files) content[file.name] = archive.substr(file.offset, file.size);
    return content;
  }
  [[nodiscard]] std::string Refusal(const std::string& entries, Bytes most = MiB(1)) const {
    return std::string(Open(Model(Away(entries)), most).status().message());
  }

  test::TemporaryDirectory folder_;
};

using Contents = std::map<std::string, std::string>;

TEST_F(ExternalWeights, TravelInAnArchiveUnderTheirNames) {
  for (const auto& entries :
       {Entry("location", "weights"),
        Entry("location", "weights") + Entry("offset", "3") + Entry("length", "4"),
        Entry("location", "./weights") + Entry("offset", "10") + Entry("checksum", "x")}) {
    const std::string model = Model(Away(entries));
    EXPECT_EQ(Files(model), (Contents{{"model.onnx", model}, {"weights", "0123456789"}}));
  }
  const std::string nested = Model(Away(Entry("location", "parts/more")));
  EXPECT_EQ(Files(nested), (Contents{{"model.onnx", nested}, {"parts/more", "abcd"}}));
  const std::string own = Model(Away(Entry("location", "model.onnx")));
  EXPECT_EQ(Files(own), (Contents{{"model.onnx", own}}));
}

TEST_F(ExternalWeights, TheSameFilesGiveTheSameBytesHoweverTheyAreRead) {
  const std::string model = Model(Away(Entry("location", "weights")) + Away(Entry("location", "parts/more")));
  const std::string whole = Sent(model);
  const auto again = Open(model);
  ASSERT_TRUE(again.ok()) << again.status();
  for (const std::size_t piece : {1u, 7u, 512u, 1000u}) {
    std::string bytes;
    while (bytes.size() < whole.size())
      bytes += *(*again)->Read(bytes.size(), std::min(piece, whole.size() - bytes.size()));
    EXPECT_EQ(bytes, whole) << piece;
  }
}

TEST_F(ExternalWeights, AFileThatShrinksWhileItIsSentIsNotPadded) {
  const auto source = Open(Model(Away(Entry("location", "weights"))));
  ASSERT_TRUE(source.ok()) << source.status();
  std::filesystem::resize_file(Path("model/weights"), 5);
  const auto read = (*source)->Read(0, (*source)->size());
  EXPECT_TRUE(absl::IsAborted(read.status())) << read.status();
}

TEST_F(ExternalWeights, OfAttributesAndOfGraphsInsideNodes) {
  const auto node = [](const std::string& attribute) {
    return Delimited(7, Delimited(1, Delimited(4, "Constant") + Delimited(5, attribute)));
  };
  const std::string away = Away(Entry("location", "parts/more"));
  EXPECT_TRUE(Files(node(Delimited(5, away))).contains("parts/more"));
  EXPECT_TRUE(Files(node(Delimited(6, Delimited(5, away)))).contains("parts/more"));
}

TEST_F(ExternalWeights, AModelWithoutThemStaysAsItIs) {
  const std::string model = Model(Name("w") + Delimited(9, "bytes"));
  EXPECT_EQ(Sent(model), model);
  for (const std::string& other : {std::string("an ONNX file"), std::string(40, '\xff'), model.substr(0, 20)})
    EXPECT_EQ(Sent(other), other);
}

TEST_F(ExternalWeights, OutsideOfTheFolderAreRefused) {
  EXPECT_THAT(Refusal(Entry("location", "../secret")), HasSubstr("leads out of the model's folder"));
  EXPECT_THAT(Refusal(Entry("location", "parts/../../secret")), HasSubstr("leads out"));
  EXPECT_THAT(Refusal(Entry("location", Path("secret"))), HasSubstr("not a path below"));
  EXPECT_THAT(Refusal(Entry("location", "link")), HasSubstr("symbolic link"));
  EXPECT_THAT(Refusal(Entry("location", "up/secret")), HasSubstr("symbolic link"));
  EXPECT_THAT(Refusal(Entry("location", std::string("weights\0x", 9))), HasSubstr("not a path below"));
  EXPECT_THAT(Refusal(Entry("offset", "0")), HasSubstr("not a path below"));
}

TEST_F(ExternalWeights, ThatAreNotThereOrTooLargeAreRefused) {
  EXPECT_THAT(Refusal(Entry("location", "none")), HasSubstr("put the file beside the model"));
  EXPECT_THAT(Refusal(Entry("location", "parts")), HasSubstr("not a regular file"));
  EXPECT_THAT(Refusal(Entry("location", "weights") + Entry("length", "11")), HasSubstr("10 bytes, but 11"));
  EXPECT_THAT(Refusal(Entry("location", "weights") + Entry("offset", "18446744073709551615")),
              HasSubstr("at offset 18446744073709551615"));
  EXPECT_THAT(Refusal(Entry("location", "weights") + Entry("offset", "-1")), HasSubstr("offset '-1'"));
  EXPECT_THAT(Refusal(Entry("location", "weights"), KiB(2)), HasSubstr("at most 2 KiB are taken"));
  EXPECT_THAT(std::string(Open(std::string(1025, 'x')).status().message()),
              HasSubstr("at most 1 KiB are taken"));
}

}  // namespace
}  // namespace troupe::shell
