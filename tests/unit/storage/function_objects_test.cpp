// Which objects of a function's model a store lacks.
#include "storage/function_objects.hpp"

#include <gtest/gtest.h>

#include "base/digest.hpp"
#include "storage/disk_model_repository.hpp"
#include "tests/unit/storage/files.hpp"

namespace troupe::storage {
namespace {

class FunctionObjects : public testing::Test {
 protected:
  std::unique_ptr<DiskModelRepository> Open() {
    auto repository = DiskModelRepository::At(directory_.path());
    EXPECT_TRUE(repository.ok()) << repository.status();
    return *std::move(repository);
  }
  void Put(const std::string& text) { ASSERT_TRUE(Open()->Put(std::as_bytes(std::span(text))).ok()); }
  [[nodiscard]] std::string PathOf(const std::string& text) const {
    const auto digest = Sha256Hex(text);
    return directory_ / ("objects/" + digest.substr(0, 2) + "/" + digest);
  }
  static proto::FunctionRecord Function() {
    proto::FunctionRecord function;
    function.set_model_digest(Sha256Hex("model"));
    function.set_model_bytes(5);
    function.set_weights_digest(Sha256Hex("weights"));
    function.set_weights_bytes(7);
    auto& packed = *function.add_packed();
    packed.set_model_digest(Sha256Hex("packed"));
    packed.set_model_bytes(6);
    return function;
  }

  TemporaryDirectory directory_;
};

TEST_F(FunctionObjects, AWholeModelLacksNothing) {
  for (const auto text : {"model", "weights", "packed"}) Put(text);
  EXPECT_TRUE(StoredObjects(*Open()).LackingFor(Function()).empty());
}

TEST_F(FunctionObjects, WhatIsNotThereOrCutShortIsNamed) {
  for (const auto text : {"model", "weights"}) Put(text);
  WriteFile(PathOf("weights"), "weig");
  const auto lacking = StoredObjects(*Open()).LackingFor(Function());
  ASSERT_EQ(lacking.size(), 2U);
  EXPECT_EQ(lacking[0], "weights " + Sha256Hex("weights") + " (4 bytes instead of 7)");
  EXPECT_EQ(lacking[1], "packed model " + Sha256Hex("packed") + " (not there)");
}

// The objects are named by their digests, so that the store accepts them.
TEST_F(FunctionObjects, AFormatFileThatIsGoneIsWrittenAnew) {
  Put("model");
  std::filesystem::remove(directory_ / "FORMAT");
  EXPECT_TRUE(Open()->Has(Sha256Hex("model")));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "FORMAT"));
}

}  // namespace
}  // namespace troupe::storage
