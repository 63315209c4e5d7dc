#include "shell/inputs/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "shell/inputs/npy.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  [[nodiscard]] std::string Path(const std::string& name) const { return folder_ / name; }

  test::TemporaryDirectory folder_;
};

TEST_F(Files, AreReadWholeAndBounded) {
  ASSERT_TRUE(WriteFile(Path("a"), "content").ok());
  EXPECT_EQ(*ReadFile(Path("a"), Bytes(7)), "content");
  EXPECT_THAT(std::string(ReadFile(Path("a"), Bytes(6)).status().message()), HasSubstr("at most 6 B"));
  EXPECT_THAT(std::string(ReadFile(Path("none"), KiB(1)).status().message()), HasSubstr("No such file"));
  EXPECT_THAT(std::string(ReadFile(folder_.path(), KiB(1)).status().message()),
              HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(ReadFile(Path("pipe"), KiB(1)).status().message()),
              HasSubstr("not a regular file"));
}

TEST_F(Files, AFolderMeansItsOnlyModel) {
  const auto said = [&] { return std::string(FindOnnxFile(folder_.path()).status().message()); };
  EXPECT_EQ(*FindOnnxFile(Path("any")), Path("any"));
  EXPECT_THAT(said(), HasSubstr("without an .onnx file"));
  ASSERT_TRUE(WriteFile(Path("model.onnx"), "m").ok() && WriteFile(Path("model.onnx.data"), "w").ok());
  EXPECT_EQ(*FindOnnxFile(folder_.path()), Path("model.onnx"));
  ASSERT_TRUE(WriteFile(Path("a.onnx"), "m").ok());
  EXPECT_THAT(said(), HasSubstr("a.onnx, model.onnx; say which"));
  ASSERT_TRUE(WriteFile(Path("b.onnx"), "m").ok());
  EXPECT_THAT(said(), HasSubstr("a.onnx, b.onnx and 1 more; say which"));
}

TEST_F(Files, AFailedWriteLeavesNothingBehind) {
  EXPECT_FALSE(WriteFile(Path("none/a"), "x").ok());
  std::filesystem::create_directory(Path("taken"));
  EXPECT_FALSE(WriteFile(Path("taken"), "x").ok());
  EXPECT_FALSE(std::filesystem::exists(Path("taken.part")));
}

TEST_F(Files, TensorsAreCheckedAgainstTheirDeclaration) {
  proto::TensorSpec declared;
  declared.set_name("image");
  declared.set_type(proto::FP32);
  declared.add_shape(-1);
  ASSERT_TRUE(WriteFile(Path("x.json"), "[1, 2]").ok());
  const auto tensor = ReadTensorFile(Path("x.json"), declared);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->spec().name(), "image");
  ASSERT_TRUE(WriteFile(Path("x.npy"), *WriteNpy(*tensor)).ok());
  EXPECT_TRUE(ReadTensorFile(Path("x.npy"), declared).ok());
  declared.set_shape(0, 3);
  EXPECT_THAT(
      std::string(ReadTensorFile(Path("x.npy"), declared).status().message()),
      testing::AllOf(HasSubstr("input 'image' from"), HasSubstr("expected FP32 [3], found FP32 [2]")));
  EXPECT_THAT(std::string(ReadTensorFile(Path("x.txt"), declared).status().message()),
              HasSubstr("neither .npy"));
}

}  // namespace
}  // namespace troupe::shell
