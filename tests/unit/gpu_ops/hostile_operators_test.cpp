// Every operator of the table is given thousands of random steps: attributes, types, shapes and contents that
// no exporter writes. It may answer with an error or a result, but must not touch memory of others (the
// guards of RunOp see that, and AddressSanitizer sees the rest).
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/random.hpp"
#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

constexpr int kRounds = 150;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::int64_t Below(std::int64_t n) {
    return static_cast<std::int64_t>(random_.Below(static_cast<std::uint64_t>(n)));
  }
  bool OneIn(std::int64_t n) { return Below(n) == 0; }
  std::int64_t Small() {
    if (OneIn(40)) return std::numeric_limits<std::int64_t>::min();
    if (OneIn(40)) return std::numeric_limits<std::int64_t>::max();
    return Below(9) - 4;
  }

 private:
  Random random_;
};

Shape RandomShape(Dice& dice) {
  Shape shape(static_cast<std::size_t>(dice.Below(5)));
  for (std::int64_t& dim : shape) dim = dice.OneIn(12) ? 0 : 1 + dice.Below(4);
  return shape;
}

TestTensor RandomTensor(Dice& dice, const Shape& shape) {
  constexpr proto::DataType kTypes[] = {proto::FP32,  proto::FP32,  proto::FP32, proto::INT64,
                                        proto::INT64, proto::INT32, proto::BOOL, proto::UINT8,
                                        proto::FP16,  proto::FP64,  proto::INT8};
  if (dice.OneIn(15)) return {};
  if (dice.OneIn(8)) {
    std::vector<std::string> texts;
    std::int64_t left = 1;
    for (std::int64_t dim : shape) left *= dim;
    for (; left > 0; --left)
      texts.emplace_back(std::string("1, a b").substr(0, static_cast<std::size_t>(dice.Below(7))));
    return Texts(shape, texts);
  }
  TestTensor tensor;
  tensor.type = kTypes[dice.Below(std::size(kTypes))];
  tensor.shape = shape;
  std::int64_t count = 1;
  for (std::int64_t dim : shape) count *= dim;
  const std::size_t size = ElementSize(tensor.type);
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte element[8] = {};
    const std::int64_t integer = dice.Small();
    const auto narrow = static_cast<std::int32_t>(integer);
    const auto real = static_cast<float>(dice.Below(1000)) / 100.0F - 5.0F;
    if (tensor.type == proto::FP32) {
      std::memcpy(element, &real, 4);
    } else if (tensor.type == proto::INT32) {
      std::memcpy(element, &narrow, 4);
    } else {
      std::memcpy(element, &integer, 8);
    }
    tensor.data.insert(tensor.data.end(), element, element + size);
  }
  tensor.known = dice.Below(3) != 0;
  return tensor;
}

void AddAttributes(Dice& dice, proto::Step& step) {
  static const char* const kInts[] = {"axis",
                                      "keepdims",
                                      "batch_dims",
                                      "blocksize",
                                      "k",
                                      "largest",
                                      "upper",
                                      "to",
                                      "dtype",
                                      "allowzero",
                                      "group",
                                      "exclusive",
                                      "reverse",
                                      "batch_axis",
                                      "time_axis",
                                      "hidden_size",
                                      "layout",
                                      "start",
                                      "end",
                                      "fmod",
                                      "ceil_mode",
                                      "count_include_pad",
                                      "output_height",
                                      "sampling_ratio",
                                      "transA",
                                      "transB",
                                      "noop_with_empty_axes",
                                      "select_last_index",
                                      "size",
                                      "stash_type",
                                      "linear_before_reset",
                                      "storage_order",
                                      "exclude_outside",
                                      "num_outputs",
                                      "num_groups",
                                      "num_heads",
                                      "q_num_heads",
                                      "kv_num_heads",
                                      "is_causal",
                                      "qk_matmul_output_mode",
                                      "interleaved",
                                      "rotary_embedding_dim",
                                      "antialias",
                                      "align_corners",
                                      "block_size",
                                      "output_dtype"};
  static const char* const kLists[] = {"axes",      "perm",           "pads",        "strides",
                                       "dilations", "kernel_shape",   "starts",      "ends",
                                       "split",     "output_padding", "output_shape"};
  static const std::pair<const char*, const char*> kTexts[] = {
      {"mode", "linear"},
      {"mode", "cubic"},
      {"mode", "reflect"},
      {"mode", "edge"},
      {"mode", "CRD"},
      {"mode", "max"},
      {"mode", "wrap"},
      {"reduction", "max"},
      {"approximate", "tanh"},
      {"padding_mode", "reflection"},
      {"keep_aspect_ratio_policy", "not_larger"},
      {"coordinate_transformation_mode", "half_pixel_symmetric"},
      {"direction", "LEFT"},
      {"direction", "bidirectional"},
      {"reduction", "add"},
      {"auto_pad", "SAME_UPPER"},
      {"equation", "ij,jk->ik"},
      {"equation", "...i->..."},
      {"equation", "ii"},
      {"coordinate_transformation_mode", "tf_crop_and_resize"},
      {"coordinate_transformation_mode", "align_corners"}};
  for (const char* name : kInts) {
    if (dice.OneIn(4)) SetInt(step, name, dice.Small());
  }
  for (const char* name : kLists) {
    if (!dice.OneIn(5)) continue;
    std::vector<std::int64_t> values(static_cast<std::size_t>(dice.Below(5)));
    for (std::int64_t& value : values) value = dice.Small();
    SetInts(step, name, values);
  }
  const auto& [name, text] = kTexts[dice.Below(std::size(kTexts))];
  SetText(step, name, text);
  if (dice.OneIn(4)) SetFloat(step, "epsilon", static_cast<float>(dice.Small()));
}

TEST(HostileOperators, NeverTouchWhatIsNotTheirs) {
  int results = 0;
  for (const Operator* entry : AllOperators()) {
    for (int round = 0; round < kRounds; ++round) {
      Dice dice(static_cast<std::uint64_t>(round) * 7919 + 1);
      proto::Step step = MakeStep(std::string(entry->name), 1 + static_cast<int>(dice.Below(3)));
      AddAttributes(dice, step);
      const Shape common = RandomShape(dice);
      std::vector<TestTensor> in(static_cast<std::size_t>(dice.Below(7)));
      for (TestTensor& tensor : in) tensor = RandomTensor(dice, dice.OneIn(3) ? RandomShape(dice) : common);
      const int opset =
          entry->min_opset + static_cast<int>(dice.Below(entry->max_opset - entry->min_opset + 1));
      SCOPED_TRACE(step.ShortDebugString());
      results += RunOp(step, in, opset).ok() ? 1 : 0;
    }
  }
  EXPECT_GT(results, 1000);  // enough of the steps are sound to get as far as a kernel
}

// Heads, tables and masks that nearly fit: most steps of a random kind do not get as far as these operators' loops.
TEST(HostileOperators, AttentionOfNearlyFittingTensors) {
  int results = 0;
  for (int round = 0; round < 3000; ++round) {
    Dice dice(static_cast<std::uint64_t>(round) * 104729 + 7);
    const std::int64_t batch = 1 + dice.Below(2), heads = 1 + dice.Below(3), rows = dice.Below(4),
                       size = 2 * dice.Below(3);
    const auto near = [&](Shape shape) {
      if (!shape.empty() && dice.OneIn(6))
        shape[dice.Below(static_cast<std::int64_t>(shape.size()))] += dice.Below(3) - 1;
      for (std::int64_t& dim : shape) dim = std::max<std::int64_t>(dim, 0);
      return Counting(shape);
    };
    const bool flat = dice.OneIn(2);
    const auto tensor = [&](std::int64_t length) {
      return near(flat ? Shape{batch, length, heads * size} : Shape{batch, heads, length, size});
    };
    const std::int64_t keys = dice.Below(4), past = dice.Below(3);
    proto::Step step =
        MakeStep(dice.OneIn(2) ? "Attention" : "RotaryEmbedding", 1 + static_cast<int>(dice.Below(4)));
    AddAttributes(dice, step);
    std::vector<TestTensor> in = {tensor(rows), tensor(keys), tensor(keys)};
    if (step.op() == "Attention") {
      SetInt(step, "q_num_heads", heads);
      SetInt(step, "kv_num_heads", heads);
      in.push_back(dice.OneIn(2) ? TestTensor() : near({rows, past + keys}));
      if (past > 0) in.insert(in.end(), 2, near({batch, heads, past, size}));
    } else {
      SetInt(step, "num_heads", heads);
      in[1] = in[2] = near({keys, size / 2});
      std::vector<std::int64_t> ids(static_cast<std::size_t>(batch * rows));
      for (std::int64_t& id : ids)
        id = dice.OneIn(30) ? dice.Small() : dice.Below(std::max<std::int64_t>(keys, 1));
      in.push_back(Longs({batch, rows}, ids));
    }
    SCOPED_TRACE(step.ShortDebugString());
    results += RunOp(step, in, 23).ok() ? 1 : 0;
  }
  EXPECT_GT(results, 500);
}

}  // namespace
}  // namespace troupe::gpu
