#include "gpu/import/canonical_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/digest.hpp"
#include "base/status.hpp"
#include "gpu/import/model_check.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CanonicalFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string file = SmallNetwork().File();
    imported_ = *ReadOnnx(AsBytes(file), {});
  }

  absl::Status Changed(const std::function<void(proto::Model&)>& change) {
    proto::Model model = imported_.model;
    change(model);
    return CheckModel(model, imported_.weights.size());
  }

  const troupe::test::TemporaryDirectory place_;
  const fs::path folder_ = place_.path();
  ImportedModel imported_;
};

TEST_F(CanonicalFilesTest, RoundTrip) {
  const auto digest = WriteCanonical(folder_, imported_.model, imported_.weights);
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(*digest, ModelDigest(imported_.model));
  const auto read = ReadCanonical(folder_, *digest);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(SerializeModel(read->model), SerializeModel(imported_.model));
  EXPECT_TRUE(std::ranges::equal(read->weights, imported_.weights));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read->weights.data()) % 64, 0);
  EXPECT_TRUE(ReadCanonical(folder_, "").ok());
  EXPECT_FALSE(fs::exists(folder_ / "model.pb.part"));
}

// As the import does it: the weights go to the file first, and are read there.
TEST_F(CanonicalFilesTest, WeightsThatAreWrittenAndReadAgainNeedNoMemory) {
  const std::string file = SmallNetwork().File();
  const auto files = OpenCanonical(folder_);
  ASSERT_TRUE(files.ok()) << files.status();
  WeightsFile output(files->weights);
  ImportOptions options;
  options.weights = &output;
  const auto imported = ReadOnnx(AsBytes(file), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(imported->weights.empty());
  EXPECT_TRUE(std::ranges::equal(imported->blob(), imported_.weights));
  EXPECT_EQ(SerializeModel(imported->model), SerializeModel(imported_.model));
  EXPECT_TRUE(absl::IsFailedPrecondition(output.Append(imported_.weights)));
  const auto digest = WriteModelFile(*files, imported->model);
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_TRUE(std::ranges::equal(ReadCanonical(folder_, *digest)->weights, imported_.weights));
}

TEST_F(CanonicalFilesTest, OneFileOneDigest) {
  const std::string file = SmallNetwork().File();
  EXPECT_EQ(ModelDigest(ReadOnnx(AsBytes(file), {})->model), ModelDigest(imported_.model));
}

TEST_F(CanonicalFilesTest, MissingAndDamagedFiles) {
  EXPECT_EQ(ReadCanonical(folder_, "").status().code(), absl::StatusCode::kNotFound);
  const std::string digest = *WriteCanonical(folder_, imported_.model, imported_.weights);
  EXPECT_EQ(ReadCanonical(folder_, Sha256Hex("other")).status().code(), absl::StatusCode::kDataLoss);
  std::fstream weights(folder_ / kWeightsFile, std::ios::in | std::ios::out);
  weights.seekp(100);
  weights.put('!');
  weights.close();
  EXPECT_EQ(ReadCanonical(folder_, digest).status().code(), absl::StatusCode::kDataLoss);
  fs::resize_file(folder_ / kWeightsFile, 64);
  EXPECT_THAT(ReadCanonical(folder_, digest).status().message(), HasSubstr("weights"));
  std::ofstream(folder_ / kModelFile) << "not a model";
  EXPECT_EQ(ReadCanonical(folder_, "").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CanonicalFilesTest, WritingIntoNoFolder) {
  EXPECT_FALSE(WriteCanonical(folder_ / "absent", imported_.model, imported_.weights).ok());
  if (fs::exists("/dev/full")) {
    fs::create_symlink("/dev/full", folder_ / kWeightsFile);
    EXPECT_TRUE(IsDiskFull(WriteCanonical(folder_, imported_.model, imported_.weights).status()));
  }
}

TEST_F(CanonicalFilesTest, SoundModelsPass) {
  EXPECT_TRUE(Changed([](proto::Model&) {}).ok());
}

TEST_F(CanonicalFilesTest, EveryRuleIsChecked) {
  const std::pair<const char*, std::function<void(proto::Model&)>> rules[] = {
      {"format", [](auto& m) { m.set_format_version(9); }},
      {"bytes of weights", [](auto& m) { m.set_weights_bytes(m.weights_bytes() + 1); }},
      {"digest", [](auto& m) { m.set_weights_digest("abc"); }},
      {"type", [](auto& m) { m.mutable_inputs(0)->set_type(proto::DATA_TYPE_UNSPECIFIED); }},
      {"negative", [](auto& m) { m.mutable_inputs(0)->set_shape(1, -5); }},
      {"second time", [](auto& m) { *m.add_inputs() = m.inputs(0); }},
      {"second time", [](auto& m) { *m.add_weights() = m.weights(0); }},
      {"aligned", [](auto& m) { m.mutable_weights(1)->set_offset(m.weights(1).offset() + 4); }},
      {"outside", [](auto& m) { m.mutable_weights(1)->set_offset(std::uint64_t{1} << 40); }},
      {"outside", [](auto& m) { m.mutable_weights(1)->set_length(~std::uint64_t{0}); }},
      {"ask for", [](auto& m) { m.mutable_weights(1)->set_length(4); }},
      {"2^40", [](auto& m) { m.mutable_weights(0)->set_shape(0, std::int64_t{1} << 41); }},
      {"device layout", [](auto& m) { m.mutable_weights(0)->set_layout("blocked"); }},
      {"before anything produces", [](auto& m) { m.mutable_steps(0)->set_inputs(0, "later"); }},
      {"before anything produces", [](auto& m) { m.mutable_steps()->SwapElements(0, 1); }},
      {"second time", [](auto& m) { m.mutable_steps(1)->set_outputs(0, "x"); }},
      {"no operator", [](auto& m) { m.mutable_steps(0)->set_op(""); }},
      {"activation", [](auto& m) { m.mutable_steps(0)->set_activation("Explode"); }},
      {"no value", [](auto& m) { m.mutable_steps(0)->add_attributes()->set_name("empty"); }},
      {"produces the output", [](auto& m) { m.mutable_outputs(0)->set_name("z"); }},
      {"stands twice", [](auto& m) { *m.add_outputs() = m.outputs(0); }},
      {"no outputs", [](auto& m) { m.clear_outputs(); }},
  };
  for (const auto& [message, change] : rules) {
    const absl::Status status = Changed(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

TEST_F(CanonicalFilesTest, PackedWeightsMayHaveAnySize) {
  EXPECT_TRUE(Changed([](proto::Model& m) {
                m.set_packed_for("cpu-test/1");
                m.mutable_weights(0)->set_layout("blocked");
                m.mutable_weights(0)->set_length(m.weights(0).length() - 4);
              }).ok());
}

}  // namespace
}  // namespace troupe::gpu::test
