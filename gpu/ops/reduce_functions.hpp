// What the reductions fold with. Acc<T>: double for floats; integers fold in their own type and wrap.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace troupe::gpu {

template <class T>
using Unsigned =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
template <class T>
using SumType = std::conditional_t<std::is_floating_point_v<T>, double, Unsigned<T>>;

// A result that was computed as double; integers saturate, and get 0 for NaN.
template <class T>
T FromDouble(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (value != value) return 0;
    if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    if (value <= static_cast<double>(std::numeric_limits<T>::lowest()))
      return std::numeric_limits<T>::lowest();
  }
  return static_cast<T>(value);
}

// Folding that starts at 0 or 1 and merges like it steps.
template <class T>
struct SumFold {
  using Acc = SumType<T>;
  static Acc Init() { return 0; }
  static void Step(Acc& acc, T x) { acc += static_cast<Acc>(x); }
  static void Merge(Acc& acc, Acc other) { acc += other; }
  static T Final(Acc acc, std::int64_t) { return static_cast<T>(acc); }
};
template <class T>
struct MeanFold : SumFold<T> {
  static T Final(typename SumFold<T>::Acc acc, std::int64_t n) {
    if constexpr (std::is_integral_v<T>) {
      return n == 0 ? 0 : static_cast<T>(static_cast<T>(acc) / static_cast<T>(n));
    } else {
      return static_cast<T>(acc / static_cast<double>(n));
    }
  }
};
template <class T>
struct LogSumFold : SumFold<T> {
  static T Final(typename SumFold<T>::Acc acc, std::int64_t) {
    return FromDouble<T>(std::log(static_cast<double>(static_cast<T>(acc))));
  }
};
template <class T>
struct L1Fold : SumFold<T> {
  static void Step(typename SumFold<T>::Acc& acc, T x) {
    const auto wide = static_cast<typename SumFold<T>::Acc>(x);
    acc += x < 0 ? -wide : wide;
  }
};
template <class T>
struct SumSquareFold : SumFold<T> {
  static void Step(typename SumFold<T>::Acc& acc, T x) {
    const auto wide = static_cast<typename SumFold<T>::Acc>(x);
    acc += wide * wide;
  }
};
template <class T>
struct L2Fold : SumSquareFold<T> {
  static T Final(typename SumFold<T>::Acc acc, std::int64_t) {
    return FromDouble<T>(std::sqrt(static_cast<double>(acc)));
  }
};
template <class T>
struct ProdFold {
  using Acc = SumType<T>;
  static Acc Init() { return 1; }
  static void Step(Acc& acc, T x) { acc *= static_cast<Acc>(x); }
  static void Merge(Acc& acc, Acc other) { acc *= other; }
  static T Final(Acc acc, std::int64_t) { return static_cast<T>(acc); }
};
template <class T>
struct MaxFold {
  using Acc = T;
  static Acc Init() {
    return std::is_integral_v<T> ? std::numeric_limits<T>::lowest() : -std::numeric_limits<T>::infinity();
  }
  static void Step(Acc& acc, T x) { acc = acc > x || acc != acc ? acc : x; }
  static void Merge(Acc& acc, Acc other) { Step(acc, other); }
  static T Final(Acc acc, std::int64_t) { return acc; }
};
template <class T>
struct MinFold {
  using Acc = T;
  static Acc Init() {
    return std::is_integral_v<T> ? std::numeric_limits<T>::max() : std::numeric_limits<T>::infinity();
  }
  static void Step(Acc& acc, T x) { acc = acc < x || acc != acc ? acc : x; }
  static void Merge(Acc& acc, Acc other) { Step(acc, other); }
  static T Final(Acc acc, std::int64_t) { return acc; }
};

// The sum of exponentials relative to the largest exponent so far, so that none overflows.
template <class T>
struct LogSumExpFold {
  struct Acc {
    double largest;
    double sum;
  };
  static Acc Init() { return {-std::numeric_limits<double>::infinity(), 0}; }
  static void Step(Acc& acc, T value) { Merge(acc, {static_cast<double>(value), 1}); }
  static void Merge(Acc& acc, Acc other) {
    if (other.largest == acc.largest) {
      acc.sum += other.sum;
    } else if (other.largest < acc.largest) {
      acc.sum += other.sum * std::exp(other.largest - acc.largest);
    } else {  // larger, or NaN, which then stays
      acc.sum = acc.sum * std::exp(acc.largest - other.largest) + other.sum;
      acc.largest = other.largest;
    }
  }
  static T Final(Acc acc, std::int64_t) {
    return FromDouble<T>(acc.sum == 0 ? acc.largest : acc.largest + std::log(acc.sum));
  }
};

}  // namespace troupe::gpu
