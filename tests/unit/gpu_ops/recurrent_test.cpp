// LSTM, GRU and RNN against plain loops: sizes that fill no vector, several sequences with lengths of their own, both
// directions, more steps than are computed ahead.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu::recurrent_test {
namespace {

struct Case {
  std::string op;
  std::int64_t steps, batch, input, hidden;
  bool both = false;  // directions
  bool lengths = false;
  bool before_reset = false;
  bool clipped = false;
  bool relu = false;  // instead of the usual activations
};

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// The inputs as the operator has them.
struct Inputs {
  std::vector<float> x, w, r, b, h, c;
  std::vector<std::int32_t> lengths;
};

class Reference {
 public:
  Reference(const Case& c, const Inputs& in)
      : c_(c), in_(in), gates_(c.op == "LSTM" ? 4 : (c.op == "GRU" ? 3 : 1)) {}

  // Y of [steps, directions, batch, hidden].
  std::vector<float> Run() {
    const std::int64_t directions = c_.both ? 2 : 1;
    std::vector<float> y(At(c_.steps * directions * c_.batch * c_.hidden));
    for (std::int64_t d = 0; d < directions; ++d) {
      for (std::int64_t b = 0; b < c_.batch; ++b) {
        const std::int64_t first = (d * c_.batch + b) * c_.hidden;
        h_.assign(in_.h.begin() + first, in_.h.begin() + first + c_.hidden);
        s_.assign(At(c_.hidden), 0);
        if (gates_ == 4) s_.assign(in_.c.begin() + first, in_.c.begin() + first + c_.hidden);
        const std::int64_t length = c_.lengths ? in_.lengths[At(b)] : c_.steps;
        for (std::int64_t i = 0; i < length; ++i) {
          const std::int64_t t = d == 1 ? length - 1 - i : i;
          Step(d, b, t);
          for (std::int64_t u = 0; u < c_.hidden; ++u)
            y[At(((t * directions + d) * c_.batch + b) * c_.hidden + u)] = static_cast<float>(h_[At(u)]);
        }
      }
    }
    return y;
  }

 private:
  static std::size_t At(std::int64_t i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] double F(double x) const { return c_.relu ? std::max(x, 0.0) : Sigmoid(x); }
  [[nodiscard]] double G(double x) const { return c_.relu ? std::max(x, 0.0) : std::tanh(x); }
  [[nodiscard]] double Clip(double x) const { return c_.clipped ? std::clamp(x, -0.5, 0.5) : x; }
  [[nodiscard]] double OfInput(std::int64_t d, std::int64_t b, std::int64_t t, std::int64_t row) const {
    const std::int64_t rows = gates_ * c_.hidden;
    double sum = in_.b[At(d * 2 * rows + row)];
    for (std::int64_t i = 0; i < c_.input; ++i)
      sum += in_.x[At((t * c_.batch + b) * c_.input + i)] * in_.w[At((d * rows + row) * c_.input + i)];
    return sum;
  }
  [[nodiscard]] double OfPast(std::int64_t d, std::int64_t row, const std::vector<double>& past) const {
    const std::int64_t rows = gates_ * c_.hidden;
    double sum = in_.b[At(d * 2 * rows + rows + row)];
    for (std::int64_t i = 0; i < c_.hidden; ++i)
      sum += past[At(i)] * in_.r[At((d * rows + row) * c_.hidden + i)];
    return sum;
  }
  void Step(std::int64_t d, std::int64_t b, std::int64_t t) {
    const std::int64_t n = c_.hidden;
    const std::vector<double> past = h_;
    const auto sum = [&](std::int64_t gate, std::int64_t u) {
      return Clip(OfInput(d, b, t, gate * n + u) + OfPast(d, gate * n + u, past));
    };
    std::vector<double> reset(past);
    if (gates_ == 3)
      for (std::int64_t u = 0; u < n; ++u) reset[At(u)] = F(sum(1, u)) * past[At(u)];
    for (std::int64_t u = 0; u < n; ++u) {
      if (gates_ == 1) {
        h_[At(u)] = G(sum(0, u));
      } else if (gates_ == 4) {
        s_[At(u)] = F(sum(2, u)) * s_[At(u)] + F(sum(0, u)) * G(sum(3, u));
        h_[At(u)] = F(sum(1, u)) * G(s_[At(u)]);
      } else {
        const double update = F(sum(0, u));
        const double of_past =
            c_.before_reset ? F(sum(1, u)) * OfPast(d, 2 * n + u, past) : OfPast(d, 2 * n + u, reset);
        const double fresh = G(Clip(OfInput(d, b, t, 2 * n + u) + of_past));
        h_[At(u)] = (1 - update) * fresh + update * past[At(u)];
      }
    }
  }

  const Case& c_;
  const Inputs& in_;
  const std::int64_t gates_;
  std::vector<double> h_, s_;
};

std::vector<float> Draw(std::mt19937& random, std::int64_t count, float width) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = std::uniform_real_distribution<float>(-width, width)(random);
  return values;
}

class Recurrent : public testing::TestWithParam<Case> {};

TEST_P(Recurrent, IsWhatPlainLoopsCompute) {
  const Case& c = GetParam();
  std::mt19937 random(7);
  const std::int64_t directions = c.both ? 2 : 1,
                     rows = (c.op == "LSTM" ? 4 : (c.op == "GRU" ? 3 : 1)) * c.hidden;
  const std::int64_t states = directions * c.batch * c.hidden;
  Inputs in{Draw(random, c.steps * c.batch * c.input, 1),
            Draw(random, directions * rows * c.input, 0.5F),
            Draw(random, directions * rows * c.hidden, 0.8F / std::sqrt(static_cast<float>(c.hidden))),
            Draw(random, directions * 2 * rows, 0.3F),
            Draw(random, states, 1),
            Draw(random, states, 1),
            {}};
  for (std::int64_t b = 0; b < c.batch; ++b) in.lengths.push_back(static_cast<std::int32_t>(c.steps - b));
  proto::Step step = MakeStep(c.op);
  if (c.both) SetText(step, "direction", "bidirectional");
  if (c.clipped) SetFloat(step, "clip", 0.5F);
  if (c.before_reset) SetInt(step, "linear_before_reset", 1);
  const int acts = static_cast<int>(directions) * (c.op == "LSTM" ? 3 : (c.op == "GRU" ? 2 : 1));
  if (c.relu) SetTexts(step, "activations", std::vector<std::string>(static_cast<std::size_t>(acts), "Relu"));
  std::vector<TestTensor> tensors = {
      Floats({c.steps, c.batch, c.input}, in.x),
      Floats({directions, rows, c.input}, in.w),
      Floats({directions, rows, c.hidden}, in.r),
      Floats({directions, 2 * rows}, in.b),
      c.lengths ? Tensor<std::int32_t>(proto::INT32, {c.batch}, in.lengths) : TestTensor{},
      Floats({directions, c.batch, c.hidden}, in.h)};
  if (c.op == "LSTM") tensors.push_back(Floats({directions, c.batch, c.hidden}, in.c));
  const auto out = RunOp(step, tensors);
  ASSERT_TRUE(out.ok()) << out.status();
  const auto y = (*out)[0].As<float>();
  const auto expected = Reference(c, in).Run();
  ASSERT_EQ(y.size(), expected.size());
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 2e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(
    All, Recurrent,
    testing::Values(Case{"LSTM", 5, 1, 3, 7}, Case{"LSTM", 4, 3, 9, 20},
                    Case{"LSTM", 6, 3, 5, 33, true, true}, Case{"LSTM", 3, 2, 4, 6, true, false, false, true},
                    Case{"LSTM", 3, 2, 4, 6, false, true, false, false, true},
                    // 27 of the 40 steps are computed ahead.
                    Case{"LSTM", 40, 2, 2, 300}, Case{"GRU", 5, 1, 3, 7}, Case{"GRU", 4, 3, 9, 20},
                    Case{"GRU", 6, 3, 5, 33, true, true}, Case{"GRU", 4, 3, 9, 21, true, false, true},
                    Case{"GRU", 3, 2, 4, 6, false, false, true, true},
                    Case{"GRU", 3, 2, 4, 6, false, false, false, false, true}, Case{"RNN", 5, 1, 3, 7},
                    Case{"RNN", 6, 3, 5, 33, true, true}, Case{"RNN", 300, 2, 2, 130, true}),
    [](const testing::TestParamInfo<Case>& info) {
      return info.param.op + "_" + std::to_string(info.index);
    });

}  // namespace
}  // namespace troupe::gpu::recurrent_test
