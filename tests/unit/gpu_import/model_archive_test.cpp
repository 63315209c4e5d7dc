#include "gpu/import/model_archive.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/tar.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

std::string Entry(const std::string& name, const std::string& content) {
  return TarHeader(name, content.size()) + content + std::string(TarPadding(content.size()), '\0');
}

std::string Refusal(const std::string& archive) {
  return std::string(OpenModelArchive(AsBytes(archive)).status().message());
}

// y = x + w, where w lies in `location`.
std::string ModelOf(const std::string& location, const std::string& offset) {
  OnnxBuilder b;
  b.Input("x", {2});
  onnx::TensorProto& tensor = b.Weight("w", {2}, {});
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : {std::pair("location", location), std::pair("offset", offset)}) {
    auto& pair = *tensor.add_external_data();
    pair.set_key(key);
    pair.set_value(value);
  }
  b.Node("Add", {"x", "w"}, {"y"});
  b.Output("y", {2});
  return b.File();
}

TEST(ModelArchive, WeightsAreReadWhereTheyLie) {
  for (const std::string offset : {"8", "3"}) {
    for (const std::string folder : {"", "./", "export/net/"}) {
      const auto file = Entry(folder + "parts/w.bin", "0123456789abcdefghij") +
                        Entry(folder + "model.onnx", ModelOf("./parts/w.bin", offset)) + TarEnd();
      const auto archive = OpenModelArchive(AsBytes(file));
      ASSERT_TRUE(archive.ok()) << archive.status();
      ImportOptions options;
      options.opened = archive->files;
      const auto imported = ReadOnnx(archive->onnx, options);
      ASSERT_TRUE(imported.ok()) << imported.status();
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(imported->weights.data()), 8),
                offset == "8" ? "89abcdef" : "3456789a");
    }
  }
}

TEST(ModelArchive, TensorsOutsideOfItAreRefused) {
  const auto read = [](const std::string& location, const std::string& offset) {
    const auto file = Entry("net/model.onnx", ModelOf(location, offset)) + Entry("w.bin", "0123456789") +
                      Entry("net/v.bin", "01234567");
    const auto archive = OpenModelArchive(AsBytes(file));
    ImportOptions options;
    options.opened = archive->files;
    return std::string(ReadOnnx(archive->onnx, options).status().message());
  };
  EXPECT_EQ(read("v.bin", "0"), "");
  EXPECT_THAT(read("../w.bin", "0"), HasSubstr("outside the model's folder"));
  EXPECT_THAT(read("w.bin", "0"), HasSubstr("'w.bin', which is not in the archive"));
  EXPECT_THAT(read("/etc/passwd", "0"), HasSubstr("outside the model's folder"));
  EXPECT_THAT(read("v.bin", "1"), HasSubstr("has 8 bytes, but 8 at offset 1 are needed"));
  EXPECT_THAT(read("v.bin", "18446744073709551615"), HasSubstr("8 bytes"));
}

TEST(ModelArchive, AnythingElseIsTheModelItself) {
  const std::string file = ModelOf("w.bin", "0");
  const auto archive = OpenModelArchive(AsBytes(file));
  ASSERT_TRUE(archive.ok());
  EXPECT_EQ(archive->onnx.data(), AsBytes(file).data());
  EXPECT_TRUE(archive->files.empty());
}

TEST(ModelArchive, OneModelWithFilesOfDifferentNames) {
  EXPECT_THAT(Refusal(Entry("w.bin", "x") + TarEnd()), HasSubstr("1 files, and none that ends in .onnx"));
  EXPECT_THAT(Refusal(Entry("a.onnx", "x") + Entry("b.onnx", "x")), HasSubstr("'a.onnx' and 'b.onnx'"));
  EXPECT_THAT(Refusal(Entry("a.onnx", "x") + Entry("w", "x") + Entry("./w", "y")), HasSubstr("'./w' twice"));
  EXPECT_THAT(Refusal(Entry("a.onnx", std::string(600, 'x')).substr(0, 700)), HasSubstr("ends early"));
}

TEST(ModelArchive, ACompressedFileIsToBeUnpacked) {
  const std::pair<std::string, const char*> files[] = {
      {std::string("\x1f\x8b\x08\0", 4),
       "the file is compressed with gzip; unpack it (gunzip, or tar -xzf) and give "
       "the ONNX file, or a plain tar archive (tar -cf) of it and of its weights"},
      {"BZh9", "bzip2"},
      {std::string("\xfd\x37zXZ\0", 6), "xz"},
      {"\x28\xb5\x2f\xfd", "zstd"},
      {"PK\x03\x04", "zip archive"},
  };
  for (const auto& [begin, says] : files) EXPECT_THAT(Refusal(begin + "and more"), HasSubstr(says));
  EXPECT_EQ(Refusal("P"), "") << "what it is, is the reader's to say";
}

}  // namespace
}  // namespace troupe::gpu::test
