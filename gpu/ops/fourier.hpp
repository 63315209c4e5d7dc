// The discrete Fourier transform of any length, for DFT and STFT.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace troupe::gpu {

// Splits a length by its prime factors, so that a length of small ones takes n log n steps. Made once; transforms may
// run on several threads, each with buffers of its own.
class Fourier {
 public:
  // n >= 1. `inverse`: with the opposite sign, and divided by n.
  Fourier(std::int64_t n, bool inverse);

  [[nodiscard]] std::int64_t length() const { return n_; }
  // Of `in`, n elements; `work` has n elements too and is written. None of the three may overlap.
  void Run(const std::complex<double>* in, std::complex<double>* out, std::complex<double>* work) const;

 private:
  void Transform(std::int64_t n, std::size_t factor, const std::complex<double>* in, std::int64_t stride,
                 std::complex<double>* out, std::complex<double>* work) const;

  std::int64_t n_;
  double scale_;
  std::vector<std::complex<double>> roots_;  // of unity, n of them
  std::vector<std::int64_t> factors_;
};

}  // namespace troupe::gpu
