#include "shell/inputs/external_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

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

  absl::StatusOr<std::string> Read(const std::string& model, Bytes most = KiB(1)) const {
    EXPECT_TRUE(WriteFile(Path("model/model.onnx"), model).ok());
    return ReadModelWithWeights(Path("model/model.onnx"), most);
  }
  std::string Refusal(const std::string& entries, Bytes most = KiB(1)) const {
    return std::string(Read(Model(Away(entries)), most).status().message());
  }

  test::TemporaryDirectory folder_;
};

TEST_F(ExternalWeights, ArePutInside) {
  const auto inside = [](const std::string& bytes) { return Model(Name("w") + Delimited(9, bytes)); };
  EXPECT_EQ(*Read(Model(Away(Entry("location", "weights")))), inside("0123456789"));
  EXPECT_EQ(*Read(Model(Away(Entry("location", "weights") + Entry("offset", "3") + Entry("length", "4")))),
            inside("3456"));
  EXPECT_EQ(*Read(Model(Away(Entry("location", "./parts/more") + Entry("checksum", "x")))), inside("abcd"));
  EXPECT_EQ(*Read(Model(Away(Entry("location", "weights") + Entry("offset", "10")))), inside(""));
}

TEST_F(ExternalWeights, OfAttributesAndOfGraphsInsideNodes) {
  const auto node = [](const std::string& attribute) {
    return Delimited(7, Delimited(1, Delimited(4, "Constant") + Delimited(5, attribute)));
  };
  const std::string away = Away(Entry("location", "parts/more"));
  const std::string here = Name("w") + Delimited(9, "abcd");
  EXPECT_EQ(*Read(node(Delimited(5, away))), node(Delimited(5, here)));
  EXPECT_EQ(*Read(node(Delimited(6, Delimited(5, away)))), node(Delimited(6, Delimited(5, here))));
}

TEST_F(ExternalWeights, AModelWithoutThemStaysAsItIs) {
  const std::string model = Model(Name("w") + Delimited(9, "bytes"));
  EXPECT_EQ(*Read(model), model);
  for (const std::string& other : {std::string("an ONNX file"), std::string(40, '\xff'), model.substr(0, 20)})
    EXPECT_EQ(*Read(other), other);
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
  EXPECT_THAT(
      Refusal(Entry("location", "weights"), Bytes(Model(Away(Entry("location", "weights"))).size() + 9)),
      HasSubstr("2 GiB"));
}

}  // namespace
}  // namespace troupe::shell
