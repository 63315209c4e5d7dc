// LSTM, GRU, RNN: one direction and one sequence of the batch at a time. Compiled with its own flags
// (CMakeLists.txt).
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/ops/families.hpp"
#include "gpu/ops/recurrent.hpp"

namespace troupe::gpu {

void AddProducts(const float* x, const float* w, std::int64_t rows, std::int64_t n, float* out) {
  for (std::int64_t r = 0; r < rows; ++r, w += n) {
    float sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i] * w[i];
    out[r] += sum;
  }
}

namespace {

// One direction's parameters and the state of one sequence.
struct Cell {
  const Recurrent& r;
  const RecurrentActivation* act;
  const float* w;
  const float* recurrence;
  const float* bias;      // [2 * gates * hidden] or null
  const float* peephole;  // LSTM: [3 * hidden] or null
  float* h;
  float* c;      // LSTM
  float* gates;  // gates * hidden, then as much again for GRU
  [[nodiscard]] float Clip(float x) const { return r.clip > 0 ? std::clamp(x, -r.clip, r.clip) : x; }
};

void AddBias(const float* bias, std::int64_t n, float* out) {
  if (bias == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) out[i] += bias[i];
}

void StepRnn(const Cell& cell, const float* x) {
  const std::int64_t hidden = cell.r.hidden;
  std::fill_n(cell.gates, hidden, 0.0F);
  AddProducts(x, cell.w, hidden, cell.r.input, cell.gates);
  AddProducts(cell.h, cell.recurrence, hidden, hidden, cell.gates);
  AddBias(cell.bias, hidden, cell.gates);
  AddBias(cell.bias == nullptr ? nullptr : cell.bias + hidden, hidden, cell.gates);
  for (std::int64_t i = 0; i < hidden; ++i) cell.h[i] = cell.act[0](cell.Clip(cell.gates[i]));
}

// Gates in the order i, o, f, c; peepholes in the order i, o, f.
void StepLstm(const Cell& cell, const float* x) {
  const std::int64_t hidden = cell.r.hidden;
  const std::int64_t all = 4 * hidden;
  std::fill_n(cell.gates, all, 0.0F);
  AddProducts(x, cell.w, all, cell.r.input, cell.gates);
  AddProducts(cell.h, cell.recurrence, all, hidden, cell.gates);
  AddBias(cell.bias, all, cell.gates);
  AddBias(cell.bias == nullptr ? nullptr : cell.bias + all, all, cell.gates);
  const float* p = cell.peephole;
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float past = cell.c[i];
    const auto peep = [&](std::int64_t gate, float state) {
      return p == nullptr ? 0.0F : p[gate * hidden + i] * state;
    };
    const float in = cell.act[0](cell.Clip(cell.gates[i] + peep(0, past)));
    const float forget =
        cell.r.input_forget ? 1.0F - in : cell.act[0](cell.Clip(cell.gates[2 * hidden + i] + peep(2, past)));
    const float fresh = cell.act[1](cell.Clip(cell.gates[3 * hidden + i]));
    const float state = forget * past + in * fresh;
    const float out = cell.act[0](cell.Clip(cell.gates[hidden + i] + peep(1, state)));
    cell.c[i] = state;
    cell.h[i] = out * cell.act[2](state);
  }
}

// Gates in the order z, r, h.
void StepGru(const Cell& cell, const float* x) {
  const std::int64_t hidden = cell.r.hidden;
  const std::int64_t all = 3 * hidden;
  float* input = cell.gates;
  float* recur = cell.gates + all;
  std::fill_n(cell.gates, 2 * all, 0.0F);
  AddProducts(x, cell.w, all, cell.r.input, input);
  AddBias(cell.bias, all, input);
  AddProducts(cell.h, cell.recurrence, 2 * hidden, hidden, recur);
  AddBias(cell.bias == nullptr ? nullptr : cell.bias + all, all, recur);
  for (std::int64_t i = 0; i < 2 * hidden; ++i) input[i] = cell.act[0](cell.Clip(input[i] + recur[i]));
  const float* update = input;
  float* reset = input + hidden;
  float* past = recur;  // the gates' part has been used up
  const float* matrix = cell.recurrence + 2 * hidden * hidden;
  if (cell.r.linear_before_reset) {
    AddProducts(cell.h, matrix, hidden, hidden, recur + 2 * hidden);
    for (std::int64_t i = 0; i < hidden; ++i) recur[2 * hidden + i] *= reset[i];
  } else {
    for (std::int64_t i = 0; i < hidden; ++i) past[i] = reset[i] * cell.h[i];
    AddProducts(past, matrix, hidden, hidden, recur + 2 * hidden);
  }
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float fresh = cell.act[1](cell.Clip(input[2 * hidden + i] + recur[2 * hidden + i]));
    cell.h[i] = (1.0F - update[i]) * fresh + update[i] * cell.h[i];
  }
}

using StepFunction = void (*)(const Cell&, const float*);

const float* At(In in, std::size_t index, std::int64_t offset) {
  return Present(in, index) ? Data<float>(in[index]) + offset : nullptr;
}

// Row of a state tensor ([directions, batch, hidden], or batch first).
std::int64_t StateRow(const Recurrent& r, std::int64_t d, std::int64_t b) {
  return (r.batch_first ? b * r.directions + d : d * r.batch + b) * r.hidden;
}

void LoadState(const Recurrent& r, In in, std::size_t index, std::int64_t row, float* state) {
  const float* initial = At(in, index, row);
  std::fill_n(state, r.hidden, 0.0F);
  if (initial != nullptr) std::copy_n(initial, r.hidden, state);
}

void StoreState(const Recurrent& r, Out out, std::size_t index, std::int64_t row, const float* state) {
  if (index < out.size() && out[index].data != nullptr) {
    std::copy_n(state, r.hidden, MutableData<float>(out[index]) + row);
  }
}

void RunSequence(const Recurrent& r, StepFunction step, const Cell& cell, In in, Out out, std::int64_t d,
                 std::int64_t b, std::int64_t length) {
  const bool backwards = r.reverse_only || d == 1;
  LoadState(r, in, 5, StateRow(r, d, b), cell.h);
  LoadState(r, in, 6, StateRow(r, d, b), cell.c);
  float* y = out[0].data == nullptr ? nullptr : MutableData<float>(out[0]);
  const auto y_row = [&](std::int64_t t) {
    return (r.batch_first ? (b * r.steps + t) * r.directions + d : (t * r.directions + d) * r.batch + b) *
           r.hidden;
  };
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t t = backwards ? length - 1 - i : i;
    step(cell, Data<float>(in[0]) + (r.batch_first ? b * r.steps + t : t * r.batch + b) * r.input);
    if (y != nullptr) std::copy_n(cell.h, r.hidden, y + y_row(t));
  }
  for (std::int64_t t = length; t < r.steps && y != nullptr; ++t) std::fill_n(y + y_row(t), r.hidden, 0.0F);
  StoreState(r, out, 1, StateRow(r, d, b), cell.h);
  StoreState(r, out, 2, StateRow(r, d, b), cell.c);
}

Made MakeRecurrent(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(Recurrent recurrent, ReadRecurrent(ctx, in));
  const StepFunction function =
      ctx.step.op() == "LSTM" ? &StepLstm : (ctx.step.op() == "GRU" ? &StepGru : &StepRnn);
  const Bytes scratch(static_cast<std::uint64_t>(recurrent.hidden * (2 + 2 * recurrent.gates)) *
                      sizeof(float));
  return MakeKernel(
      [r = std::move(recurrent), function, step = ctx.step](In in, Out out,
                                                            std::byte* scratch) -> absl::Status {
        auto* memory = reinterpret_cast<float*>(scratch);
        const std::int64_t rows = r.gates * r.hidden;
        for (std::int64_t d = 0; d < r.directions; ++d) {
          const Cell cell{r,
                          r.activations.data() + static_cast<std::size_t>(d) * r.per_direction,
                          Data<float>(in[1]) + d * rows * r.input,
                          Data<float>(in[2]) + d * rows * r.hidden,
                          At(in, 3, d * 2 * rows),
                          At(in, 7, d * 3 * r.hidden),
                          memory,
                          memory + r.hidden,
                          memory + 2 * r.hidden};
          for (std::int64_t b = 0; b < r.batch; ++b) {
            const std::int64_t length = Present(in, 4) ? Data<std::int32_t>(in[4])[b] : r.steps;
            if (length < 0 || length > r.steps) {
              return StepContext{step}.Error(
                  absl::StrCat("a sequence of ", length, " in ", r.steps, " steps"));
            }
            RunSequence(r, function, cell, in, out, d, b, length);
          }
        }
        return absl::OkStatus();
      },
      scratch);
}

constexpr Operator Entry(std::string_view name) {
  return {.name = name,
          .min_opset = 7,
          .max_opset = kNewestOpset,
          .infer = &InferRecurrent,
          .make = &MakeRecurrent,
          .types = TypesOf({proto::FP32})};
}

constexpr Operator kOperators[] = {Entry("LSTM"), Entry("GRU"), Entry("RNN")};

}  // namespace

std::span<const Operator> RecurrentOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
