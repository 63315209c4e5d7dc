#include "gpu/ops/double_product.hpp"

#include <algorithm>
#include <utility>

#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

// One row of a result; rows of B are read in order where they lie in order.
void MultiplyRow(const DoubleProduct& p, const double* a, const double* b, double* out) {
  std::fill_n(out, p.n, 0.0);
  for (std::int64_t k = 0; k < p.k; ++k) {
    const double factor = p.alpha * a[k * p.a_column];
    const double* row = b + k * p.b_row;
    if (p.b_column == 1) {
      for (std::int64_t j = 0; j < p.n; ++j) out[j] += factor * row[j];
    } else {
      for (std::int64_t j = 0; j < p.n; ++j) out[j] += factor * row[j * p.b_column];
    }
  }
}

}  // namespace

Made MakeDoubleProduct(DoubleProduct product) {
  return MakeKernel([p = std::move(product)](In in, Out out, std::byte*) {
    const auto batch = static_cast<std::int64_t>(p.a_begin.size());
    ParallelRanges(batch * p.m, p.k * p.n, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        const auto matrix = static_cast<std::size_t>(i / p.m);
        const std::int64_t row = i % p.m;
        double* result = MutableData<double>(out[0]) + i * p.n;
        MultiplyRow(p, Data<double>(in[0]) + p.a_begin[matrix] + row * p.a_row,
                    Data<double>(in[1]) + p.b_begin[matrix], result);
        if (p.beta == 0) continue;
        const double* added = Data<double>(in[2]) + row * p.c_row;
        for (std::int64_t j = 0; j < p.n; ++j) result[j] += p.beta * added[j * p.c_column];
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace troupe::gpu
