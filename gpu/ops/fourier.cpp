#include "gpu/ops/fourier.hpp"

#include <cmath>
#include <numbers>

namespace troupe::gpu {

Fourier::Fourier(std::int64_t n, bool inverse) : n_(n), scale_(inverse ? 1.0 / static_cast<double>(n) : 1.0) {
  const double turn = (inverse ? 2 : -2) * std::numbers::pi / static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i) roots_.push_back(std::polar(1.0, turn * static_cast<double>(i)));
  for (std::int64_t prime = 2; n > 1; ++prime) {
    if (prime * prime > n) prime = n;
    for (; n % prime == 0; n /= prime) factors_.push_back(prime);
  }
}

void Fourier::Run(const std::complex<double>* in, std::complex<double>* out,
                  std::complex<double>* work) const {
  Transform(n_, 0, in, 1, out, work);
  for (std::int64_t i = 0; i < n_; ++i) out[i] *= scale_;
}

// Cooley and Tukey: the transforms of every p-th element, then sums of p of them.
void Fourier::Transform(std::int64_t n, std::size_t factor, const std::complex<double>* in,
                        std::int64_t stride, std::complex<double>* out, std::complex<double>* work) const {
  if (n == 1) {
    *out = *in;
    return;
  }
  const std::int64_t p = factors_[factor];
  const std::int64_t part = n / p;
  for (std::int64_t r = 0; r < p; ++r)
    Transform(part, factor + 1, in + r * stride, stride * p, work + r * part, out + r * part);
  const std::int64_t step = n_ / n;  // between roots of this length
  for (std::int64_t k = 0; k < n; ++k) {
    std::complex<double> sum = 0;
    for (std::int64_t r = 0; r < p; ++r)
      sum += roots_[static_cast<std::size_t>(r * k % n * step)] * work[r * part + k % part];
    out[k] = sum;
  }
}

}  // namespace troupe::gpu
