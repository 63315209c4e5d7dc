// Files that no exporter writes: each gets an answer.
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/model_check.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

// Damaged lengths and counts must not become memory: the limits of these tests are small.
ImportOptions Tight() {
  ImportOptions options;
  options.max_weights = MiB(16);
  options.max_folded = MiB(1);
  return options;
}

void Try(const std::string& file) {
  const auto imported = ImportOnnx(AsBytes(file), Tight());
  if (imported.ok()) {
    EXPECT_TRUE(CheckModel(imported->model, imported->weights.size()).ok());
  } else {
    EXPECT_NE(imported.status().code(), absl::StatusCode::kInternal) << imported.status();
    EXPECT_FALSE(imported.status().message().empty());
  }
}

TEST(HostileFiles, CutAtEveryByte) {
  const std::string file = SmallNetwork().File();
  for (std::size_t size = 0; size < file.size(); size += 3) Try(file.substr(0, size));
}

TEST(HostileFiles, BitsFlipped) {
  const std::string file = SmallNetwork().File();
  Random random(20260101);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = file;
    for (std::uint64_t flips = 1 + random.Below(3); flips > 0; --flips)
      damaged[random.Below(damaged.size())] ^= static_cast<char>(1U << random.Below(8));
    Try(damaged);
  }
}

// Flips bits only outside the weights' contents, where they change the structure.
TEST(HostileFiles, StructureDamaged) {
  OnnxBuilder b = SmallNetwork();
  for (onnx::TensorProto& tensor : *b.graph().mutable_initializer()) {
    if (tensor.dims_size() > 1) continue;
    tensor.clear_raw_data();
    tensor.mutable_float_data()->Resize(static_cast<int>(tensor.dims(0)), 0.25F);
  }
  const std::string file = b.File();
  Random random(4711);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = file;
    const std::size_t at = random.Below(damaged.size());
    damaged[at] = static_cast<char>(random.Below(256));
    if (random.Below(4) == 0) damaged.insert(at, 1, static_cast<char>(random.Below(256)));
    if (random.Below(4) == 0) damaged.erase(random.Below(damaged.size()), 1);
    Try(damaged);
  }
}

// Attributes and dimensions take values that no exporter writes.
TEST(HostileFiles, NumbersReplaced) {
  const std::int64_t values[] = {0,         -1,       1, -2, 7, std::int64_t{1} << 31, std::int64_t{1} << 40,
                                 INT64_MAX, INT64_MIN};
  Random random(99);
  for (int round = 0; round < 1000; ++round) {
    OnnxBuilder b = SmallNetwork();
    const std::int64_t value = values[random.Below(std::size(values))];
    onnx::NodeProto& node = *b.graph().mutable_node(static_cast<int>(random.Below(b.graph().node_size())));
    switch (random.Below(4)) {
      case 0:
        SetInt(node, "axis", value);
        break;
      case 1:
        SetInts(node, random.Below(2) == 0 ? "strides" : "kernel_shape", {value, value});
        break;
      case 2:
        SetInt(node, "group", value);
        break;
      default: {
        onnx::TensorProto& tensor =
            *b.graph().mutable_initializer(static_cast<int>(random.Below(b.graph().initializer_size())));
        tensor.set_dims(0, value);
      }
    }
    Try(b.File());
  }
}

}  // namespace
}  // namespace troupe::gpu::test
