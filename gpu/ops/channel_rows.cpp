// Compiled with its own flags (CMakeLists.txt).
#include "gpu/ops/channel_rows.hpp"

#include "gpu/ops/binary_functions.hpp"
#include "gpu/ops/vector_targets.hpp"

namespace troupe::gpu {
namespace {

template <class F, std::int64_t kBlock>
struct ChannelBody {
  TROUPE_INLINE static void Run(const Row& row) {
    const float* x = reinterpret_cast<const float*>(row.in[0]);
    const float* of_channel = reinterpret_cast<const float*>(row.in[1]);
    float* out = reinterpret_cast<float*>(row.out);
    const F f(row.parameters);
    float values[kBlock];
    for (std::int64_t j = 0; j < kBlock; ++j) values[j] = of_channel[j];
    for (std::int64_t i = 0; i < row.n; i += kBlock) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < kBlock; ++j) out[i + j] = f(x[i + j], values[j]);
    }
  }
};

template <std::int64_t kBlock>
RowFunction Find(std::string_view op) {
  if (op == "Add") return BestRow<ChannelBody<AddOf<float>, kBlock>>();
  if (op == "Sub") return BestRow<ChannelBody<SubOf<float>, kBlock>>();
  if (op == "Mul") return BestRow<ChannelBody<MulOf<float>, kBlock>>();
  if (op == "Div") return BestRow<ChannelBody<DivOf<float>, kBlock>>();
  return nullptr;
}

}  // namespace

RowFunction FindChannelRow(std::string_view op, std::int64_t block) {
  return block == 8 ? Find<8>(op) : (block == 16 ? Find<16>(op) : nullptr);
}

}  // namespace troupe::gpu
