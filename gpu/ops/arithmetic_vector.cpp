// Arithmetic on FP32 rows as vector code. Compiled with its own flags (CMakeLists.txt).
#include "gpu/ops/arithmetic_vector.hpp"

#include "gpu/ops/binary_functions.hpp"
#include "gpu/ops/vector_math.hpp"

namespace troupe::gpu {
namespace {

template <class F>
RowFunction Best() {
  return BestRow<BinaryBody<float, float, F>>();
}

// Models raise to the power of two (variance) and of a half; both are far from a call of powf.
struct PowBody {
  TROUPE_INLINE static void Run(const Row& row) {
    const float* x = reinterpret_cast<const float*>(row.in[0]);
    const float* y = reinterpret_cast<const float*>(row.in[1]);
    float* out = reinterpret_cast<float*>(row.out);
    const std::int64_t n = row.n;
    if (row.step[1] == 0 && row.step[0] == 1 && *y == 2.0F) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * x[i];
    } else if (row.step[1] == 0 && row.step[0] == 1 && *y == 3.0F) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * x[i] * x[i];
    } else {
      const std::int64_t step_x = row.step[0];
      const std::int64_t step_y = row.step[1];
      for (std::int64_t i = 0; i < n; ++i) out[i] = __builtin_powf(x[i * step_x], y[i * step_y]);
    }
  }
};

}  // namespace

RowFunction FindVectorArithmeticRow(std::string_view op) {
  if (op == "Add") return Best<AddOf<float>>();
  if (op == "Sub") return Best<SubOf<float>>();
  if (op == "Mul") return Best<MulOf<float>>();
  if (op == "Div") return Best<DivOf<float>>();
  if (op == "Max") return Best<MaxOf<float>>();
  if (op == "Min") return Best<MinOf<float>>();
  if (op == "PRelu") return Best<PReluOf<float>>();
  if (op == "Pow") return BestRow<PowBody>();
  return nullptr;
}

}  // namespace troupe::gpu
