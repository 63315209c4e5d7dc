#include "gpu/ops/byte_product.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.hpp"
#include "gpu/ops/byte_rows.hpp"
#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

using dnnl::memory;

// What turns INT8 into UINT8 that is 128 more, and back.
constexpr std::uint8_t kTurn = 0x80;

// Older instructions add pairs of products in 16 bits, which saturate.
bool SumsBytesExactly() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

// Null where oneDNN has nothing better than its reference.
Made MakeDnnlProduct(const ByteMatrices& m) {
  const memory::desc a({m.rows, m.depth}, memory::data_type::u8, memory::format_tag::ab);
  const memory::desc b({m.depth, m.columns}, memory::data_type::s8, memory::format_tag::ab);
  const memory::desc out({m.rows, m.columns}, memory::data_type::s32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, b, out), UserScratchpad(), CpuEngine(), true);
  if (!made || IsReference(made)) return std::unique_ptr<Kernel>();
  auto program = std::make_unique<DnnlProgram>();
  const DnnlProgram::Argument arguments[] = {{DNNL_ARG_SRC, a, DnnlProgram::Input(0)},
                                             {DNNL_ARG_WEIGHTS, b, DnnlProgram::Input(1)},
                                             {DNNL_ARG_DST, out, DnnlProgram::Output(0), true}};
  program->Add(dnnl::matmul(made), made, arguments);
  return program;
}

const std::byte* Turned(const std::byte* from, std::int64_t count, std::byte* to) {
  ParallelRanges(count, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) to[i] = from[i] ^ std::byte{kTurn};
  });
  return to;
}

std::uint32_t At(std::span<const std::int32_t> zeros, std::int64_t i, std::int32_t moved) {
  const std::int32_t zero = zeros[zeros.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  return static_cast<std::uint32_t>(zero + moved);
}

bool AllZero(std::span<const std::int32_t> zeros, std::int32_t moved) {
  return std::ranges::all_of(zeros, [=](std::int32_t zero) { return zero + moved == 0; });
}

}  // namespace

absl::StatusOr<ByteProduct> ByteProduct::Make(const StepContext& ctx, const ByteMatrices& matrices,
                                              ScratchParts& parts, By by) {
  ByteProduct product;
  product.m_ = matrices;
  const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::uint64_t>(a * b); };
  if (matrices.a == proto::INT8) product.a_ = parts.Add(count(matrices.rows, matrices.depth));
  if (matrices.b == proto::UINT8) product.b_ = parts.Add(count(matrices.depth, matrices.columns));
  product.sums_ = parts.Add(count(matrices.columns, sizeof(std::int32_t)));
  const bool empty = matrices.rows == 0 || matrices.depth == 0 || matrices.columns == 0;
  if (by == By::kLoops || empty || !SumsBytesExactly()) return product;
  TROUPE_ASSIGN_OR_RETURN(product.kernel_, GuardDnnl(ctx, [&] { return MakeDnnlProduct(matrices); }));
  if (product.kernel_ != nullptr) product.inner_ = parts.Add(product.kernel_->scratch().count());
  return product;
}

absl::Status ByteProduct::Run(const std::byte* a, std::span<const std::int32_t> zero_a, const std::byte* b,
                              std::span<const std::int32_t> zero_b, std::int32_t* out,
                              std::byte* scratch) const {
  if (m_.a == proto::INT8) a = Turned(a, m_.rows * m_.depth, scratch + a_);
  if (m_.b == proto::UINT8) b = Turned(b, m_.depth * m_.columns, scratch + b_);
  const auto* left = reinterpret_cast<const std::uint8_t*>(a);
  const auto* right = reinterpret_cast<const std::int8_t*>(b);
  if (kernel_ != nullptr) {
    // Inputs are only read; a view has no form for that.
    const std::array<TensorView, 2> in = {TensorView{proto::UINT8, {}, const_cast<std::byte*>(a)},
                                          TensorView{proto::INT8, {}, const_cast<std::byte*>(b)}};
    TensorView result{proto::INT32, {}, reinterpret_cast<std::byte*>(out)};
    TROUPE_RETURN_IF_ERROR(kernel_->Run(in, std::span(&result, 1), scratch + inner_));
  } else {
    const ByteLoops loops = FindByteLoops();
    ParallelRanges(m_.rows, m_.depth * m_.columns, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r)
        loops.multiply(left + r * m_.depth, right, m_.depth, m_.columns, out + r * m_.columns);
    });
  }
  MoveZeros(left, zero_a, right, zero_b, out, reinterpret_cast<std::int32_t*>(scratch + sums_));
  return absl::OkStatus();
}

// (a - x)(b - y) = ab - x b - y a + x y, summed over the depth.
void ByteProduct::MoveZeros(const std::uint8_t* a, std::span<const std::int32_t> zero_a, const std::int8_t* b,
                            std::span<const std::int32_t> zero_b, std::int32_t* out,
                            std::int32_t* sums) const {
  const std::int32_t moved_a = m_.a == proto::INT8 ? kTurn : 0;
  const std::int32_t moved_b = m_.b == proto::UINT8 ? -kTurn : 0;
  const bool shifts_a = !AllZero(zero_a, moved_a);
  const bool shifts_b = !AllZero(zero_b, moved_b);
  if (!shifts_a && !shifts_b) return;
  std::fill_n(sums, m_.columns, 0);
  if (shifts_a) FindByteLoops().add(b, m_.depth, m_.columns, sums);
  ParallelRanges(m_.rows, m_.depth + m_.columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const std::uint32_t x = At(zero_a, r, moved_a);
      std::uint32_t sum = 0;
      for (std::int64_t k = 0; k < m_.depth && shifts_b; ++k) sum += a[r * m_.depth + k];
      sum -= x * static_cast<std::uint32_t>(m_.depth);
      std::int32_t* row = out + r * m_.columns;
      for (std::int64_t c = 0; c < m_.columns; ++c)
        row[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(row[c]) -
                                           x * static_cast<std::uint32_t>(sums[c]) -
                                           (shifts_b ? At(zero_b, c, moved_b) * sum : 0));
    }
  });
}

}  // namespace troupe::gpu
