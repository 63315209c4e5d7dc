// Every operator of the table is given thousands of random steps: attributes, types, shapes and contents that
// no exporter writes. It may answer with an error or a result, but must not touch memory of others (the
// guards of RunOp see that, and AddressSanitizer sees the rest).
#include <gtest/gtest.h>

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
                                      "exclude_outside"};
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
      std::vector<TestTensor> in(static_cast<std::size_t>(dice.Below(5)));
      for (TestTensor& tensor : in) tensor = RandomTensor(dice, dice.OneIn(3) ? RandomShape(dice) : common);
      const int opset =
          entry->min_opset + static_cast<int>(dice.Below(entry->max_opset - entry->min_opset + 1));
      SCOPED_TRACE(step.ShortDebugString());
      results += RunOp(step, in, opset).ok() ? 1 : 0;
    }
  }
  EXPECT_GT(results, 1000);  // enough of the steps are sound to get as far as a kernel
}

}  // namespace
}  // namespace troupe::gpu
