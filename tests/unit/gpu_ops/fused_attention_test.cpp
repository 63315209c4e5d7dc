// Attention as com.microsoft has it: what a hostile file or request may ask, and what the conformance cases do not reach.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/gpu_ops/fused_steps.hpp"

namespace troupe::gpu {
namespace {

// --- Attention ---

// x [2,3,4], weights [4,12], two heads of 2.
std::vector<TestTensor> AttentionInputs() {
  return {Waves({2, 3, 4}), Waves({4, 12}), Waves({12})};
}
const proto::Step& TwoHeads() {
  static const proto::Step kStep = Microsoft("Attention", {{"num_heads", 2}});
  return kStep;
}

TEST(FusedAttention, RefusesHeadsAndWidthsThatDoNotDivide) {
  ExpectError(Microsoft("Attention"), AttentionInputs(), "num_heads is 0");
  ExpectError(Microsoft("Attention", {{"num_heads", -1}}), AttentionInputs(), "num_heads is -1");
  ExpectError(Microsoft("Attention", {{"num_heads", kHugeSize}}), AttentionInputs(), "do not split");
  ExpectError(Microsoft("Attention", {{"num_heads", 3}}), AttentionInputs(), "do not split");
  ExpectError(TwoHeads(), {Waves({2, 3, 4}), Waves({4, 13})}, "do not split");
  ExpectError(TwoHeads(), {Waves({2, 3, 4}), Waves({4, 0})}, "do not split");
  ExpectError(TwoHeads(), {Waves({2, 3, 4}), Waves({5, 12})}, "input [2,3,4]");
  ExpectError(TwoHeads(), {Waves({3, 4}), Waves({4, 12})}, "input [3,4]");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 2, Waves({11})), "bias [11]");
  const std::int64_t low = std::numeric_limits<std::int64_t>::min();
  for (const auto& widths : std::vector<std::vector<std::int64_t>>{{4, 4},
                                                                   {4, 4, 5},
                                                                   {2, 6, 4},
                                                                   {-4, -4, 20},
                                                                   {0, 0, 12},
                                                                   {low, low, 12},
                                                                   {kHugeSize, kHugeSize, 4}}) {
    proto::Step step = TwoHeads();
    SetInts(step, "qkv_hidden_sizes", widths);
    ExpectError(step, AttentionInputs(), "do not split");
  }
}

TEST(FusedAttention, RefusesByNameWhatItDoesNotDo) {
  ExpectError(Microsoft("Attention", {{"num_heads", 2}, {"do_rotary", 1}}), AttentionInputs(), "do_rotary");
  ExpectError(Microsoft("Attention", {{"num_heads", 2}, {"past_present_share_buffer", 1}}), AttentionInputs(),
              "past_present_share_buffer");
  ExpectError(Microsoft("Attention", {{"num_heads", 2}, {"new_mode", 1}}), AttentionInputs(), "'new_mode'");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 6, Int32s({1}, {0})), "past_sequence_length");
  ExpectError(TwoHeads(),
              Replaced(AttentionInputs(), 3, Int32s({2, 1, 8, 8}, std::vector<std::int32_t>(128, 1))),
              "mask_index [2,1,8,8]");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 3, Int32s({8}, std::vector<std::int32_t>(8, 1))),
              "mask_index [8]");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 3, Longs({2}, {1, 1})), "put a Cast before it");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 5, Waves({2, 2, 3, 4})), "attention_bias");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 5, Waves({3, 3})), "attention_bias");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 4, Waves({2, 2, 2, 5, 3})), "past [2,2,2,5,3]");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 4, Waves({2, 2, 5, 2})), "past [2,2,5,2]");
}

TEST(FusedAttention, LengthsThatAClientSendsAreHeldToTheSequence) {
  const auto run = [](const std::vector<std::int32_t>& ends) {
    const auto size = static_cast<std::int64_t>(ends.size());
    const auto out = RunOp(TwoHeads(), Replaced(AttentionInputs(), 3, Int32s({size}, ends)));
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() ? (*out)[0].As<float>() : std::vector<float>();
  };
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(run({kMost, 3}), run({3, 3}));
  EXPECT_EQ(run({-kMost, 0}), run({0, 0}));
  EXPECT_EQ(run({3, 3, -kMost, kMost}), run({3, 3, 0, 3}));
  EXPECT_NE(run({2, 3}), run({3, 3}));
}

TEST(FusedAttention, AMaskIsAddedToTheBias) {
  std::vector<TestTensor> both = Replaced(AttentionInputs(), 3, Int32s({2, 3}, {1, 1, 0, 1, 1, 1}));
  both = Replaced(both, 5, Waves({1, 2, 3, 3}));
  std::vector<float> sum;
  const std::vector<float> bias = both[5].As<float>();
  for (std::size_t i = 0; i < 36; ++i) sum.push_back(bias[i % 18] + (i < 18 && i % 3 == 2 ? -10000 : 0));
  const auto masked = RunOp(TwoHeads(), both);
  const auto summed = RunOp(TwoHeads(), Replaced(AttentionInputs(), 5, Floats({2, 2, 3, 3}, sum)));
  ASSERT_TRUE(masked.ok() && summed.ok()) << masked.status() << summed.status();
  EXPECT_EQ((*masked)[0].As<float>(), (*summed)[0].As<float>());
}

std::vector<TestTensor> HeadInputs() {
  return {Waves({2, 3, 4}), Waves({2, 5, 4}), Waves({2, 5, 6})};
}
const proto::Step& TwoReadyHeads() {
  static const proto::Step kStep = Microsoft("MultiHeadAttention", {{"num_heads", 2}});
  return kStep;
}

TEST(MultiHeadAttention, RefusesWhatDoesNotBelongTogether) {
  const proto::Step& step = TwoReadyHeads();
  ExpectError(Microsoft("MultiHeadAttention"), HeadInputs(), "num_heads is 0");
  ExpectError(Microsoft("MultiHeadAttention", {{"num_heads", 3}}), HeadInputs(), "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 1, Waves({1, 5, 4})), "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 1, Waves({2, 4, 4})), "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 2, Waves({2, 5, 5})), "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 2, Waves({2, 2, 5, 2})), "do not belong together");
  ExpectError(step, Replaced(Replaced(HeadInputs(), 1, Waves({2, 5, 2, 2})), 2, Waves({2, 5, 2, 2})),
              "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 3, Waves({13})), "bias [13] must be [14]");
  ExpectError(step, Replaced(HeadInputs(), 4, Int32s({2, 3}, {1, 1, 1, 1, 1, 1})), "key_padding_mask [2,3]");
  ExpectError(step, Replaced(HeadInputs(), 5, Waves({2, 2, 3, 4})), "attention_bias");
  ExpectError(step, Replaced(HeadInputs(), 6, Waves({2, 2, 7, 2})), "come together");
  ExpectError(step, Replaced(Replaced(HeadInputs(), 6, Waves({2, 2, 7, 2})), 7, Waves({2, 2, 6, 3})),
              "past_value");
}

TEST(MultiHeadAttention, RefusesByNameWhatItDoesNotDo) {
  const proto::Step& step = TwoReadyHeads();
  ExpectError(step, {Waves({2, 3, 2, 3, 2})}, "packed queries, keys and values");
  ExpectError(step, {Waves({2, 3, 4}), Waves({2, 5, 2, 2, 2})}, "without a value");
  ExpectError(step, Replaced(HeadInputs(), 8, Int32s({1}, {0})), "past_sequence_length");
  ExpectError(step, Replaced(HeadInputs(), 9, Int32s({1}, {0})), "cache_indirection");
  ExpectError(Microsoft("MultiHeadAttention", {{"num_heads", 2}}, 4), HeadInputs(), "output 3 (qk)");
  ExpectError(Microsoft("MultiHeadAttention", {{"num_heads", 2}, {"window", 1}}), HeadInputs(), "'window'");
}

// Keys and values that lie head by head give what they give row by row, with the bias too.
TEST(MultiHeadAttention, TurnedKeysTakeTheBiasAsFlatOnesDo) {
  std::vector<TestTensor> flat = HeadInputs();
  flat.push_back(Waves({14}));
  std::vector<TestTensor> turned = flat;
  for (std::size_t i : {1, 2}) {
    const std::int64_t size = flat[i].shape[2] / 2;
    const std::vector<float> from = flat[i].As<float>();
    std::vector<float> to(from.size());
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t s = 0; s < 5; ++s)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t e = 0; e < size; ++e)
            to[static_cast<std::size_t>(((b * 2 + h) * 5 + s) * size + e)] =
                from[static_cast<std::size_t>(((b * 5 + s) * 2 + h) * size + e)];
    turned[i] = Floats({2, 2, 5, size}, to);
  }
  const auto one = RunOp(TwoReadyHeads(), flat);
  const auto other = RunOp(TwoReadyHeads(), turned);
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  EXPECT_EQ((*one)[0].As<float>(), (*other)[0].As<float>());
}

// From 8 queries on FP32 is computed by products of whole heads, and FP64 row by row as fewer queries are: both agree.
TEST(StandardAttention, ManyQueriesAreAnsweredAsFewAre) {
  const auto in_type = [](proto::DataType type, const std::vector<Shape>& shapes) {
    std::vector<TestTensor> in;
    for (const Shape& shape : shapes) {
      in.push_back(Waves(shape));
      const std::vector<float> values = in.back().As<float>();
      if (type == proto::FP64)
        in.back() = Tensor<double>(type, shape, std::vector<double>(values.begin(), values.end()));
    }
    return in;
  };
  struct Form {
    std::vector<Shape> shapes;
    bool causal;
    float softcap;
    std::int64_t shown;
  };
  for (const Form& form : {Form{{{2, 3, 9, 4}, {2, 3, 11, 4}, {2, 3, 11, 5}}, false, 0, 0},
                           Form{{{2, 3, 9, 4}, {2, 3, 9, 4}, {2, 3, 9, 5}, {9, 9}}, true, 0, 3},
                           Form{{{2, 8, 12}, {2, 8, 12}, {2, 8, 6}, {2, 3, 8, 8}}, false, 2, 1},
                           Form{{{1, 64, 12}, {1, 5, 12}, {1, 5, 12}}, false, 0, 2}}) {
    proto::Step step = MakeStep("Attention", 4);
    SetInt(step, "is_causal", form.causal ? 1 : 0);
    SetInt(step, "q_num_heads", 3);
    SetInt(step, "kv_num_heads", 3);
    SetInt(step, "qk_matmul_output_mode", form.shown);
    SetFloat(step, "softcap", form.softcap);
    const auto blocks = RunOp(step, in_type(proto::FP32, form.shapes), 23);
    const auto rows = RunOp(step, in_type(proto::FP64, form.shapes), 23);
    ASSERT_TRUE(blocks.ok() && rows.ok()) << blocks.status() << rows.status();
    for (std::size_t o = 0; o < 4; ++o) {
      const std::vector<float> have = (*blocks)[o].As<float>();
      const std::vector<double> want = (*rows)[o].As<double>();
      ASSERT_EQ(have.size(), want.size());
      for (std::size_t i = 0; i < have.size(); ++i) {
        if (std::isfinite(want[i])) {
          ASSERT_NEAR(static_cast<double>(have[i]), want[i], 1e-5) << o << " " << i;
        }
      }
    }
  }
}

// --- GroupQueryAttention and RotaryEmbedding ---

// Two sequences, one new row each, 4 heads that share 2, a cache of 5 rows.
std::vector<TestTensor> GroupedInputs(const std::vector<std::int32_t>& lengths, std::int32_t total = 6) {
  return {Waves({2, 1, 8}),    Waves({2, 1, 4}),     Waves({2, 1, 4}),           Waves({2, 2, 5, 2}),
          Waves({2, 2, 5, 2}), Int32s({2}, lengths), Int32s({}, {total}).Known()};
}
const proto::Step& FourHeads() {
  static const proto::Step kStep =
      Microsoft("GroupQueryAttention", {{"num_heads", 4}, {"kv_num_heads", 2}}, 3);
  return kStep;
}

TEST(GroupQueryAttention, LengthsThatAClientSendsAreJudged) {
  EXPECT_TRUE(RunOp(FourHeads(), GroupedInputs({5, 3})).ok());
  ExpectError(FourHeads(), GroupedInputs({5, -1}), "sequence 1");
  ExpectError(FourHeads(), GroupedInputs({6, 5}), "sequence 0");
  ExpectError(FourHeads(), GroupedInputs({std::numeric_limits<std::int32_t>::max(), 5}), "sequence 0");
  ExpectError(FourHeads(), GroupedInputs({5, std::numeric_limits<std::int32_t>::min()}), "sequence 1");
}

// A sequence that is shorter than its neighbour has its new row behind its own rows, and zeros behind that.
TEST(GroupQueryAttention, EachSequenceGrowsAtItsOwnEnd) {
  const std::vector<TestTensor> in = GroupedInputs({5, 3});
  const auto out = RunOp(FourHeads(), in);
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<float> present = (*out)[1].As<float>();
  const std::vector<float> past = in[3].As<float>();
  const std::vector<float> added = in[1].As<float>();
  ASSERT_EQ((*out)[1].shape, (Shape{2, 2, 6, 2}));
  for (std::size_t h = 0; h < 2; ++h) {
    const std::size_t to = (2 + h) * 12;
    const std::size_t from = (2 + h) * 10;
    EXPECT_EQ(present[to + 5], past[from + 5]);
    EXPECT_EQ(present[to + 6], added[4 + h * 2]);
    EXPECT_EQ(present[to + 8], 0);
  }
}

TEST(GroupQueryAttention, RefusesWhatDoesNotBelongTogether) {
  const std::vector<TestTensor> in = GroupedInputs({5, 5});
  ExpectError(Microsoft("GroupQueryAttention"), in, "num_heads 0");
  ExpectError(Microsoft("GroupQueryAttention", {{"num_heads", 4}, {"kv_num_heads", 3}}), in,
              "kv_num_heads 3");
  ExpectError(Microsoft("GroupQueryAttention", {{"num_heads", 4}, {"kv_num_heads", -2}}), in,
              "kv_num_heads -2");
  ExpectError(Microsoft("GroupQueryAttention", {{"num_heads", kHugeSize}, {"kv_num_heads", 1}}), in,
              "do not belong");
  ExpectError(FourHeads(), Replaced(in, 1, Waves({2, 1, 6})), "do not belong together");
  ExpectError(FourHeads(), Replaced(in, 1, Absent()), "do not belong together");
  ExpectError(FourHeads(), Replaced(in, 3, Absent()), "come together");
  ExpectError(FourHeads(), Replaced(in, 3, Waves({2, 2, 4, 2})), "past_key");
  ExpectError(FourHeads(), Replaced(in, 5, Int32s({1}, {5})), "seqlens_k must be INT32[2]");
  ExpectError(FourHeads(), Replaced(in, 6, Int32s({}, {6})), "must be known when the plan is made");
  for (std::int32_t total : {-1, 0, 7, std::numeric_limits<std::int32_t>::max()})
    ExpectError(FourHeads(), GroupedInputs({5, 5}, total), "total_sequence_length");
  ExpectError(FourHeads(), Replaced(in, 9, Longs({2, 1}, {0, 0})), "input 9");
  ExpectError(Microsoft("GroupQueryAttention", {{"num_heads", 4}, {"kv_num_heads", 2}, {"do_rotary", 1}}), in,
              "cos_cache");
  ExpectError(
      Microsoft("GroupQueryAttention", {{"num_heads", 4}, {"kv_num_heads", 2}, {"smooth_softmax", 1}}), in,
      "smooth_softmax");
  ExpectError(Microsoft("GroupQueryAttention", {{"num_heads", 4}, {"kv_num_heads", 2}, {"v_head_size", 1}}),
              in, "'v_head_size'");
}

TEST(FusedRotary, RefusesPositionsAndShapesThatTheTablesLack) {
  const auto inputs = [](const std::vector<std::int64_t>& places) {
    return std::vector<TestTensor>{Waves({1, 2, 8}),
                                   Longs({static_cast<std::int64_t>(places.size())}, places), Waves({4, 2}),
                                   Waves({4, 2})};
  };
  const proto::Step step = Microsoft("RotaryEmbedding");
  EXPECT_TRUE(RunOp(step, inputs({2})).ok());
  ExpectError(step, inputs({3}), "4");
  ExpectError(step, inputs({-1}), "-1");
  ExpectError(step, inputs({std::numeric_limits<std::int64_t>::max()}), "RotaryEmbedding");
  ExpectError(step, inputs({0, 1}), "position_ids [2]");
  ExpectError(step, Replaced(inputs({0}), 3, Waves({4, 3})), "sin_cache");
  ExpectError(step, Replaced(inputs({0}), 0, Waves({2, 8})), "3 or 4 dimensions");
  ExpectError(step, Replaced(inputs({0}), 2, Waves({4, 0})), "cos_cache");
  ExpectError(Microsoft("RotaryEmbedding", {{"is_packed_batching", 1}}), inputs({0}), "is_packed_batching");
  ExpectError(Microsoft("RotaryEmbedding", {{"num_heads", 3}}), inputs({0}), "num_heads 3");
}

}  // namespace
}  // namespace troupe::gpu
