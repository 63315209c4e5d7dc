#include "gpu/import/external_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/status.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ExternalDataTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "model" / "sub");
    Write(root_ / "secret", "top secret bytes");
    Write(root_ / "model" / "data.bin", "0123456789abcdef");
    Write(root_ / "model" / "sub" / "data.bin", "nested");
  }

  static void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  absl::StatusOr<std::string> Read(const std::string& location, std::uint64_t offset = 0,
                                   std::uint64_t length = 4) {
    TROUPE_ASSIGN_OR_RETURN(const auto bytes, ReadExternalData(root_ / "model", {location, offset, length}));
    return std::string(*bytes);
  }
  std::string Error(const std::string& location, std::uint64_t offset = 0, std::uint64_t length = 4) {
    const auto read = Read(location, offset, length);
    return read.ok() ? "" : std::string(read.status().message());
  }

  const troupe::test::TemporaryDirectory place_;
  const fs::path root_ = place_.path();
};

TEST_F(ExternalDataTest, ReadsARange) {
  EXPECT_EQ(*Read("data.bin", 4, 6), "456789");
  EXPECT_EQ(*Read("sub/data.bin", 0, 6), "nested");
  EXPECT_EQ(*Read("./data.bin", 16, 0), "");
}

TEST_F(ExternalDataTest, NeverLeavesItsFolder) {
  fs::create_symlink(root_ / "secret", root_ / "model" / "link");
  fs::create_directory_symlink(root_, root_ / "model" / "up");
  fs::create_symlink("data.bin", root_ / "model" / "inside");
  EXPECT_THAT(Error("../secret"), HasSubstr("outside"));
  EXPECT_THAT(Error("sub/../../secret"), HasSubstr("outside"));
  EXPECT_THAT(Error((root_ / "secret").string()), HasSubstr("outside"));
  EXPECT_THAT(Error("link"), HasSubstr("outside"));
  EXPECT_THAT(Error("up/secret"), HasSubstr("outside"));
  EXPECT_EQ(*Read("inside"), "0123");
}

TEST_F(ExternalDataTest, OnlyRegularFiles) {
  ASSERT_EQ(mkfifo((root_ / "model" / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(Error("pipe"), HasSubstr("regular file"));
  EXPECT_THAT(Error("sub"), HasSubstr("regular file"));
  EXPECT_THAT(Error("absent"), AllOf(HasSubstr("cannot be read"), HasSubstr("save the model as one file")));
  EXPECT_THAT(Error(""), HasSubstr("no usable location"));
  EXPECT_THAT(Error(std::string("a\0b", 3)), HasSubstr("no usable location"));
}

TEST_F(ExternalDataTest, RangesInsideTheFile) {
  EXPECT_THAT(Error("data.bin", 0, 17), HasSubstr("16 bytes"));
  EXPECT_THAT(Error("data.bin", 17, 0), HasSubstr("16 bytes"));
  EXPECT_THAT(Error("data.bin", ~std::uint64_t{0}, 8), HasSubstr("16 bytes"));
}

TEST_F(ExternalDataTest, AsAnInitialiser) {
  OnnxBuilder b;
  b.Input("x", {2});
  onnx::TensorProto& tensor = b.Weight("w", {2}, {});
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto entry = [&tensor](const std::string& key, const std::string& value) {
    auto& pair = *tensor.add_external_data();
    pair.set_key(key);
    pair.set_value(value);
  };
  entry("location", "data.bin");
  entry("offset", "8");
  b.Node("Add", {"x", "w"}, {"y"});
  b.Output("y", {2});
  EXPECT_THAT(ReadError(b), testing::AllOf(HasSubstr("'w'"), HasSubstr("without a folder")));
  ImportOptions options;
  options.folder = root_ / "model";
  EXPECT_EQ(ReadError(b, options), "");
  entry("length", "9");
  EXPECT_THAT(ReadError(b, options), HasSubstr("9 bytes"));
  tensor.mutable_external_data(1)->set_value("12 or so");
  EXPECT_THAT(ReadError(b, options), HasSubstr("not a valid number"));
}

}  // namespace
}  // namespace troupe::gpu::test
