// What a hostile file or client may ask of each family of operators, and the error that it gets.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;
constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();

proto::Step With(const std::string& op, const std::string& name, std::int64_t value, int outputs = 1) {
  proto::Step step = MakeStep(op, outputs);
  SetInt(step, name, value);
  return step;
}

proto::Step WithText(const std::string& op, const std::string& name, const std::string& value) {
  proto::Step step = MakeStep(op);
  SetText(step, name, value);
  return step;
}

TEST(BadInput, Elementwise) {
  ExpectError(MakeStep("Add"), {Counting({2}), Counting({3})}, "broadcast");
  ExpectError(MakeStep("Add"), {Counting({2}), Longs({2}, {1, 2})}, "different types");
  ExpectError(MakeStep("Add"), {Counting({2})}, "inputs");
  ExpectError(MakeStep("Sqrt"), {Longs({1}, {4})}, "INT64");
  ExpectError(MakeStep("Mod"), {Counting({1}), Counting({1})}, "fmod");
  ExpectError(MakeStep("BitShift"), {Longs({1}, {1}), Longs({1}, {1})}, "INT64");
  ExpectError(MakeStep("Clip"), {Counting({2}), Counting({2})}, "scalar");
  ExpectError(MakeStep("Where"), {Counting({1}), Counting({1}), Counting({1})}, "FP32");
  ExpectError(With("Cast", "to", 99), {Counting({1})}, "99");
  ExpectError(With("Cast", "to", -1), {Counting({1})}, "-1");
  ExpectError(With("Cast", "to", 14), {Counting({1})}, "14");
}

TEST(BadInput, Shapes) {
  const auto reshape = [](const std::vector<std::int64_t>& to, const std::string& part) {
    ExpectError(MakeStep("Reshape"),
                {Counting({2, 3}), Longs({static_cast<std::int64_t>(to.size())}, to).Known()}, part);
    ExpectError(MakeStep("Reshape"), {Counting({2, 3}), Longs({static_cast<std::int64_t>(to.size())}, to)},
                part);
  };
  reshape({-1, -1}, "two dimensions open");
  reshape({4, -1}, "divide");
  reshape({7}, "hold");
  reshape({-2, 3}, "not a shape");
  reshape({2, 3, 0}, "not there");
  reshape({kHuge, kHuge, kHuge, -1}, "not a shape");
  ExpectError(With("Flatten", "axis", 3), {Counting({2, 3})}, "axis 3");
  ExpectError(MakeStep("Squeeze"), {Counting({2, 1}), Longs({1}, {0}).Known()}, "not 1");
  ExpectError(MakeStep("Squeeze"), {Counting({2, 1}), Longs({1}, {kLow}).Known()}, "axis");
  ExpectError(MakeStep("Unsqueeze"), {Counting({2}), Longs({2}, {0, 0}).Known()}, "twice");
  ExpectError(MakeStep("Unsqueeze"), {Counting({2}), Longs({1}, {5}).Known()}, "axis 5");
  ExpectError(MakeStep("Expand"), {Counting({2}), Longs({1}, {3}).Known()}, "broadcast");
  ExpectError(MakeStep("Expand"), {Counting({1}), Longs({2}, {kHuge, kHuge}).Known()}, "2^40");
  ExpectError(MakeStep("Expand"), {Counting({1}), Longs({1}, {-3}).Known()}, "negative");
  ExpectError(MakeStep("Expand"), {Counting({1}), Longs({1}, {3})}, "must be known");
  ExpectError(MakeStep("Tile"), {Counting({2}), Longs({1}, {-1}).Known()}, "negative");
  ExpectError(MakeStep("Tile"),
              {Counting({2}), Longs({1}, {std::numeric_limits<std::int64_t>::max()}).Known()}, "large");
  ExpectError(MakeStep("ConstantOfShape"), {Longs({2}, {kHuge, 2}).Known()}, "2^40");
  ExpectError(MakeStep("ConstantOfShape"), {Longs({1}, {-1}).Known()}, "negative");
}

TEST(BadInput, Movement) {
  proto::Step perm = MakeStep("Transpose");
  SetInts(perm, "perm", {0, 0});
  ExpectError(perm, {Counting({2, 3})}, "perm");
  ExpectError(With("Concat", "axis", 2), {Counting({2, 3}), Counting({2, 3})}, "axis 2");
  ExpectError(With("Concat", "axis", 0), {Counting({2, 3}), Counting({2, 4})}, "input 1");
  ExpectError(With("Split", "axis", 0, 2), {Counting({4}), Longs({2}, {-1, 5}).Known()}, "-1");
  ExpectError(With("Split", "axis", 0, 2), {Counting({4}), Longs({2}, {1, 2}).Known()}, "add up");
  ExpectError(With("Split", "axis", 0, 3), {Counting({4})}, "equal parts");
  ExpectError(MakeStep("Slice"), {Counting({4}), Longs({1}, {0}).Known(), Longs({2}, {1, 2}).Known()},
              "length");
  ExpectError(MakeStep("Slice"),
              {Counting({4}), Longs({1}, {0}).Known(), Longs({1}, {4}).Known(), Longs({1}, {0}).Known(),
               Longs({1}, {0}).Known()},
              "step is 0");
  ExpectError(MakeStep("Pad"), {Counting({2}), Longs({2}, {-3, 0}).Known()}, "crops");
  ExpectError(MakeStep("Pad"), {Counting({2}), Longs({2}, {kHuge * 4, 0}).Known()}, "absurd");
  ExpectError(WithText("Pad", "mode", "edge"), {Counting({2}), Longs({2}, {1 << 30, 1}).Known()}, "2^24");
  ExpectError(WithText("Pad", "mode", "mirror"), {Counting({2}), Longs({2}, {1, 1}).Known()}, "mirror");
  ExpectError(With("DepthToSpace", "blocksize", 0), {Counting({1, 4, 1, 1})}, "blocksize");
  ExpectError(With("DepthToSpace", "blocksize", 3), {Counting({1, 4, 1, 1})}, "divide");
  ExpectError(With("SpaceToDepth", "blocksize", 2), {Counting({1, 1, 3, 2})}, "divide");
}

TEST(BadInput, IndicesAreCheckedWhenTheyCome) {
  ExpectError(MakeStep("Gather"), {Counting({3, 2}), Longs({1}, {3})}, "index 3");
  ExpectError(MakeStep("Gather"), {Counting({3, 2}), Longs({1}, {-4})}, "index -4");
  ExpectError(MakeStep("Gather"), {Counting({3, 2}), Longs({1}, {kLow})}, "index");
  ExpectError(MakeStep("GatherElements"), {Counting({2, 2}), Longs({1, 1}, {2})}, "index 2");
  ExpectError(MakeStep("GatherElements"), {Counting({2, 2}), Longs({1, 3}, {0, 0, 0})}, "reach beyond");
  ExpectError(MakeStep("GatherND"), {Counting({2, 2}), Longs({1, 2}, {0, 2})}, "index 2");
  ExpectError(MakeStep("GatherND"), {Counting({2, 2}), Longs({1, 3}, {0, 0, 0})}, "do not fit");
  ExpectError(MakeStep("ScatterElements"), {Counting({2}), Longs({1}, {-3}), Counting({1})}, "index -3");
  ExpectError(MakeStep("ScatterND"), {Counting({2, 2}), Longs({1, 2}, {2, 0}), Counting({1})}, "index 2");
  ExpectError(MakeStep("ScatterND"), {Counting({2, 2}), Longs({1, 1}, {0}), Counting({1})}, "updates");
  ExpectError(With("CumSum", "exclusive", 0), {Counting({2}), Longs({1}, {1})}, "axis 1");
  proto::Step reverse = With("ReverseSequence", "batch_axis", 0);
  SetInt(reverse, "time_axis", 1);
  ExpectError(reverse, {Counting({1, 3}), Longs({1}, {4})}, "length 4");
  ExpectError(reverse, {Counting({1, 3}), Longs({1}, {-1})}, "length -1");
  ExpectError(MakeStep("RoiAlign"), {Counting({1, 1, 2, 2}), Counting({1, 4}), Longs({1}, {1})}, "index 1");
}

TEST(BadInput, ReductionsAndSelections) {
  ExpectError(MakeStep("ReduceSum"), {Counting({2}), Longs({1}, {1}).Known()}, "axis 1");
  ExpectError(MakeStep("ReduceSum"), {Counting({2, 2}), Longs({2}, {0, -2}).Known()}, "twice");
  ExpectError(With("ArgMax", "axis", -3), {Counting({2, 2})}, "axis -3");
  ExpectError(MakeStep("ArgMax"), {Counting({0})}, "empty");
  ExpectError(MakeStep("TopK", 2), {Counting({3}), Longs({1}, {4}).Known()}, "k is 4");
  ExpectError(MakeStep("TopK", 2), {Counting({3}), Longs({1}, {4})}, "k is 4");
  ExpectError(MakeStep("TopK", 2), {Counting({3}), Longs({1}, {-2})}, "k is -2");
  ExpectError(MakeStep("LayerNormalization"), {Counting({2, 3}), Counting({2})}, "normalised");
}

TEST(BadInput, Makers) {
  const auto range = [](float from, float to, float by) {
    return std::vector<TestTensor>{Floats({}, {from}).Known(), Floats({}, {to}).Known(),
                                   Floats({}, {by}).Known()};
  };
  ExpectError(MakeStep("Range"), range(0, 5, 0), "delta is 0");
  ExpectError(MakeStep("Range"), range(0, 1e30F, 1e-10F), "2^40");
  ExpectError(MakeStep("Range"), range(0, std::numeric_limits<float>::quiet_NaN(), 1), "2^40");
  ExpectError(MakeStep("OneHot"), {Longs({1}, {0}), Longs({}, {0}).Known(), Counting({2})}, "depth is 0");
  ExpectError(MakeStep("OneHot"), {Longs({1}, {0}), Longs({}, {kHuge * 2}).Known(), Counting({2})}, "depth");
  ExpectError(MakeStep("OneHot"), {Longs({1}, {0}), Longs({}, {3}).Known(), Counting({3})}, "values");
  ExpectError(MakeStep("EyeLike"), {Counting({3})}, "matrix");
  ExpectError(MakeStep("Trilu"), {Counting({3})}, "matrices");
}

TEST(BadInput, ResizeAndDetection) {
  const TestTensor none = Floats({0}, {}).Known();
  const auto scales = [&](const std::vector<float>& s) {
    return std::vector<TestTensor>{Counting({1, 1, 2, 2}), none,
                                   Floats({static_cast<std::int64_t>(s.size())}, s).Known()};
  };
  ExpectError(MakeStep("Resize"), scales({1, 1, -2, 2}), "scale -2");
  ExpectError(MakeStep("Resize"), scales({1, 1, 1e30F, 2}), "scale");
  ExpectError(MakeStep("Resize"), scales({1, 1}), "for each dimension");
  ExpectError(MakeStep("Resize"), scales({1, 1, 1e8F, 1}), "2^24");
  ExpectError(WithText("Resize", "mode", "magic"), scales({1, 1, 2, 2}), "magic");
  ExpectError(MakeStep("Resize"), {Counting({1, 1, 2, 2})}, "scales or sizes");
  ExpectError(MakeStep("NonMaxSuppression"), {Counting({1, 2, 3}), Counting({1, 1, 2})}, "boxes");
  ExpectError(With("RoiAlign", "output_height", -1),
              {Counting({1, 1, 2, 2}), Counting({1, 4}), Longs({1}, {0})}, "output_height");
}

TEST(BadInput, RecurrentQuantisedAndEinsum) {
  ExpectError(MakeStep("LSTM"), {Counting({1, 1, 2}), Counting({1, 8, 3}), Counting({1, 8, 2})}, "input 1");
  ExpectError(WithText("RNN", "direction", "sideways"),
              {Counting({1, 1, 1}), Counting({1, 1, 1}), Counting({1, 1, 1})}, "sideways");
  ExpectError(MakeStep("RNN"),
              {Counting({1, 1, 1}), Counting({1, 1, 1}), Counting({1, 1, 1}), TestTensor{},
               Tensor<std::int32_t>(proto::INT32, {1}, {2})},
              "sequence of 2");
  ExpectError(MakeStep("QuantizeLinear"), {Counting({2, 3}), Counting({2})}, "scale");
  const TestTensor bytes = Tensor<std::uint8_t>(proto::UINT8, {2, 3}, {1, 2, 3, 4, 5, 6});
  ExpectError(MakeStep("MatMulInteger"), {bytes, bytes}, "does not fit");
  const auto einsum = [](const std::string& equation, const std::string& part) {
    ExpectError(WithText("Einsum", "equation", equation), {Counting({2, 3})}, part);
  };
  einsum("ijk->i", "does not fit");
  einsum("ij->ii", "twice");
  einsum("ij->k", "twice");
  einsum("i?->i", "?");
  einsum("ij->i->j", "arrow");
  einsum("ij,jk->ik", "inputs");
  einsum("i..j->i", "three dots");
}

TEST(BadInput, OfNewerOpsets) {
  const auto longs = [](const std::vector<std::int64_t>& values) {
    return Longs({static_cast<std::int64_t>(values.size())}, values).Known();
  };
  ExpectError(With("Split", "num_outputs", 3, 2), {Counting({4})}, "num_outputs is 3", 18);
  ExpectError(With("Split", "num_outputs", 4, 4), {Counting({5})}, "do not split", 18);
  ExpectError(With("Split", "num_outputs", kLow, 2), {Counting({4})}, "num_outputs", 18);
  ExpectError(MakeStep("Pad"), {Counting({2, 2}), longs({1, 1}), TestTensor{}, longs({2})}, "axis 2", 18);
  ExpectError(MakeStep("Pad"), {Counting({2, 2}), longs({1, 1}), TestTensor{}, longs({0, 1})}, "two widths",
              18);
  ExpectError(MakeStep("Pad"), {Counting({2}), longs({1, 1}), TestTensor{}, longs({0})}, "inputs", 17);
  ExpectError(WithText("Pad", "mode", "wrap"), {Counting({2}), longs({1, 1})}, "wrap", 18);
  ExpectError(WithText("Pad", "mode", "wrap"), {Floats({0}, {}), longs({1, 1})}, "nothing to copy", 19);
  ExpectError(WithText("ScatterElements", "reduction", "max"),
              {Counting({2}), Longs({1}, {0}), Counting({1})}, "'max' at opset 17", 17);
  ExpectError(MakeStep("ReduceMax"), {Tensor<std::uint8_t>(proto::BOOL, {2}, {0, 1})}, "opset 20", 18);
  ExpectError(MakeStep("ReduceSum"), {Tensor<std::uint8_t>(proto::BOOL, {2}, {0, 1})}, "BOOL", 20);
  ExpectError(MakeStep("BitwiseAnd"), {Counting({2}), Counting({2})}, "FP32", 18);
  ExpectError(WithText("Gelu", "approximate", "erf"), {Counting({2})}, "'erf'", 20);
  ExpectError(WithText("GridSample", "mode", "bilinear"), {Counting({1, 1, 2, 2}), Counting({1, 1, 1, 2})},
              "bilinear", 20);
  ExpectError(WithText("GridSample", "mode", "cubic"), {Counting({1, 1, 2, 2, 2}), Counting({1, 1, 1, 1, 3})},
              "cubic", 20);
  ExpectError(MakeStep("AffineGrid"), {Counting({1, 2, 3}), longs({1, 1, kHuge, kHuge})}, "2^40", 20);
  ExpectError(MakeStep("AffineGrid"), {Counting({2, 2, 3}), longs({1, 1, 2, 2})}, "theta", 20);
  ExpectError(MakeStep("CenterCropPad"), {Counting({2, 2}), longs({1})}, "another length", 18);
  ExpectError(MakeStep("CenterCropPad"), {Counting({2}), longs({-1})}, "negative", 18);
  ExpectError(MakeStep("Col2Im"), {Counting({1, 4, 5}), longs({4, 4}), longs({2, 2})}, "places", 18);
  ExpectError(MakeStep("Col2Im"), {Counting({1, 4, 4}), longs({0, 4}), longs({2, 2})}, "entry", 18);
  ExpectError(With("GroupNormalization", "num_groups", 3),
              {Counting({1, 4, 2}), Counting({4}), Counting({4})}, "num_groups 3", 21);
  ExpectError(With("GroupNormalization", "num_groups", 2),
              {Counting({1, 4, 2}), Counting({2}), Counting({2})}, "wants [4]", 21);
  ExpectError(MakeStep("RMSNormalization"), {Counting({2, 3}), Counting({2})}, "normalised", 23);
}

TEST(BadInput, ResizeOfNewerOpsets) {
  const TestTensor none = Floats({0}, {}).Known();
  const auto sizes = [&](const std::vector<std::int64_t>& s) {
    return std::vector<TestTensor>{Counting({1, 1, 2, 2}), none, none,
                                   Longs({static_cast<std::int64_t>(s.size())}, s).Known()};
  };
  ExpectError(WithText("Resize", "keep_aspect_ratio_policy", "fit"), sizes({1, 1, 2, 2}), "'fit'", 18);
  ExpectError(WithText("Resize", "coordinate_transformation_mode", "half_pixel_symmetric"),
              sizes({1, 1, 2, 2}), "opset 19", 18);
  proto::Step step = With("Resize", "antialias", 1);
  SetText(step, "mode", "linear");
  SetText(step, "coordinate_transformation_mode", "tf_crop_and_resize");
  ExpectError(step, sizes({1, 1, 2, 2}), "antialias", 18);
  const auto axes = [&](const std::vector<std::int64_t>& named, const std::vector<std::int64_t>& lengths,
                        const std::string& part) {
    proto::Step resize = MakeStep("Resize");
    SetInts(resize, "axes", named);
    ExpectError(resize, sizes(lengths), part, 18);
  };
  axes({2, 2}, {2, 2}, "twice");
  axes({2, 4}, {2, 2}, "axis 4");
  axes({2}, {2, 2}, "one size for each");
}

TEST(BadInput, QuantisationInBlocks) {
  const TestTensor bytes = Tensor<std::int8_t>(proto::INT8, {2, 3}, {1, 2, 3, 4, 5, 6});
  ExpectError(With("DequantizeLinear", "block_size", 2), {bytes, Counting({2})}, "block of 2", 21);
  ExpectError(With("DequantizeLinear", "block_size", -1), {bytes, Counting({2, 2})}, "block_size is -1", 21);
  ExpectError(With("DequantizeLinear", "block_size", kLow), {bytes, Counting({2, 2})}, "block_size", 21);
  ExpectError(With("QuantizeLinear", "output_dtype", 22), {Counting({2}), Counting({1})}, "INT4", 21);
  ExpectError(With("QuantizeLinear", "output_dtype", 17), {Counting({2}), Counting({1})}, "FLOAT8E4M3FN", 21);
  ExpectError(With("Cast", "to", 17), {Counting({1})}, "FLOAT8E4M3FN", 19);
  ExpectError(With("Cast", "to", 23), {Counting({1})}, "FLOAT4E2M1", 23);
}

TEST(BadInput, Attention) {
  const auto attention = [](const std::vector<TestTensor>& in, const std::string& part) {
    ExpectError(MakeStep("Attention"), in, part, 23);
  };
  const TestTensor q = Counting({1, 2, 3, 4});
  attention({q, q}, "inputs");
  attention({q, q, Counting({1, 2, 4, 4})}, "belong together");
  attention({q, Counting({1, 2, 3, 5}), q}, "belong together");
  attention({Counting({1, 3, 3, 4}), q, q}, "belong together");
  attention({Counting({1, 3, 8}), q, q}, "q_num_heads");
  attention({q, q, q, Counting({2, 3})}, "attn_mask");
  attention({q, q, q, Longs({3, 3}, std::vector<std::int64_t>(9, 1))}, "Cast");
  attention({q, q, q, TestTensor{}, q}, "come together");
  attention({q, q, q, TestTensor{}, Counting({1, 2, 3, 5}), q}, "past_key");
  ExpectError(With("Attention", "qk_matmul_output_mode", 4), {q, q, q}, "is 4", 23);
  proto::Step step = MakeStep("Attention");
  SetFloat(step, "softcap", -1);
  ExpectError(step, {q, q, q}, "softcap", 23);
  const auto rotary = [](const std::vector<TestTensor>& in, const std::string& part) {
    ExpectError(MakeStep("RotaryEmbedding"), in, part, 23);
  };
  const TestTensor table = Counting({3, 2});
  rotary({q, table, table, Longs({1, 3}, {0, 1, 3})}, "index 3");
  rotary({q, table, table, Longs({1, 3}, {0, -1, 2})}, "index -1");
  rotary({q, table, Counting({3, 3}), Longs({1, 3}, {0, 1, 2})}, "sin_cache");
  rotary({q, table, table}, "must have shape");
  rotary({Counting({1, 2, 3, 5}), table, table}, "in pairs");
  rotary({Counting({1, 3, 8}), table, table}, "num_heads");
}

TEST(BadInput, SpectraAndTheirTables) {
  const auto number = [](std::int64_t value) { return Longs({}, {value}).Known(); };
  ExpectError(MakeStep("DFT"), {Counting({1, 4, 3})}, "1 (real) or 2", 17);
  ExpectError(MakeStep("DFT"), {Counting({1, 4, 1}), number(0)}, "dft_length is 0", 17);
  ExpectError(MakeStep("DFT"), {Counting({1, 4, 1}), number(kHuge)}, "2^20", 17);
  ExpectError(MakeStep("DFT"), {Counting({1, 4, 1}), TestTensor{}, number(-1)}, "real and imaginary", 20);
  proto::Step step = With("DFT", "onesided", 1);
  ExpectError(step, {Counting({1, 4, 2})}, "onesided", 17);
  SetInt(step, "inverse", 1);
  ExpectError(step, {Counting({1, 4, 1})}, "inverse", 17);
  ExpectError(MakeStep("STFT"), {Counting({1, 4, 1}), number(1)}, "window or a frame_length", 17);
  ExpectError(MakeStep("STFT"), {Counting({1, 4, 1}), number(0), Counting({2})}, "frame_step is 0", 17);
  ExpectError(MakeStep("STFT"), {Counting({1, 4, 1}), number(1), Counting({5})}, "has no frame of 5", 17);
  ExpectError(MakeStep("HannWindow"), {number(0)}, "size is 0", 17);
  ExpectError(MakeStep("HannWindow"), {number(kHuge)}, "2^24", 17);
  ExpectError(With("HannWindow", "output_datatype", 17), {number(4)}, "FLOAT8E4M3FN", 17);
  ExpectError(MakeStep("MelWeightMatrix"),
              {number(4), number(16), number(8000), Floats({}, {100}).Known(), Floats({}, {50}).Known()},
              "edges", 17);
  ExpectError(
      MakeStep("MelWeightMatrix"),
      {number(1 << 24), number(1 << 24), number(8000), Floats({}, {0}).Known(), Floats({}, {4000}).Known()},
      "2^40", 17);
}

TEST(BadInput, Convolutions) {
  const TestTensor wide = Tensor<double>(proto::FP64, {1, 1, 1, 1}, {1});
  ExpectError(MakeStep("Conv"), {wide, wide}, "FP64");
  ExpectError(MakeStep("Conv"),
              {Counting({1, 1, 1, 1}), Tensor<std::uint16_t>(proto::FP16, {1, 1, 1, 1}, {0})}, "alike");
}

TEST(BadInput, DropoutThatDrops) {
  const TestTensor on = Tensor<std::uint8_t>(proto::BOOL, {}, {1}).Known();
  ExpectError(MakeStep("Dropout"), {Counting({2}), Floats({}, {0.1F}).Known(), on}, "inference mode");
  ExpectError(MakeStep("Dropout"), {Counting({2}), TestTensor{}, on}, "inference mode");
  ExpectError(MakeStep("Dropout"), {Counting({2}), Floats({}, {0}), on}, "must be known");
  EXPECT_TRUE(RunOp(MakeStep("Dropout"), {Counting({2}), Floats({}, {0}).Known(), on}).ok());
}

}  // namespace
}  // namespace troupe::gpu
