// What the binary operators compute, on the wide types. Integer arithmetic wraps; nothing here is undefined
// for any operand that a file or a client may send.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "gpu/ops/vector_targets.hpp"

namespace troupe::gpu {

// Arithmetic on the unsigned twin of T, where T is an integer.
template <class T>
using Wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

struct NoParameters {
  TROUPE_INLINE explicit NoParameters(const void*) {}
};

#define TROUPE_WRAPPING(Name, op)                                                        \
  template <class T>                                                                     \
  struct Name : NoParameters {                                                           \
    using NoParameters::NoParameters;                                                    \
    TROUPE_INLINE T operator()(T x, T y) const {                                         \
      return static_cast<T>(static_cast<Wrapping<T>>(x) op static_cast<Wrapping<T>>(y)); \
    }                                                                                    \
  };
TROUPE_WRAPPING(AddOf, +)
TROUPE_WRAPPING(SubOf, -)
TROUPE_WRAPPING(MulOf, *)
#undef TROUPE_WRAPPING

// Integers: truncates towards zero; x / 0 is 0, because a kernel has no way to fail.
template <class T>
struct DivOf : NoParameters {
  using NoParameters::NoParameters;
  TROUPE_INLINE T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      if (y == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (y == -1) return static_cast<T>(Wrapping<T>(0) - static_cast<Wrapping<T>>(x));
      }
    }
    return x / y;
  }
};

// NaN wins over any number, as in NumPy.
template <class T>
struct MaxOf : NoParameters {
  using NoParameters::NoParameters;
  TROUPE_INLINE T operator()(T x, T y) const { return x > y || x != x ? x : y; }
};
template <class T>
struct MinOf : NoParameters {
  using NoParameters::NoParameters;
  TROUPE_INLINE T operator()(T x, T y) const { return x < y || x != x ? x : y; }
};

template <class T>
struct PReluOf : NoParameters {
  using NoParameters::NoParameters;
  TROUPE_INLINE T operator()(T x, T slope) const { return x < 0 ? MulOf<T>(nullptr)(x, slope) : x; }
};

// The sign of the divisor (Python), or of the dividend (C) for fmod.
template <class T>
struct ModOf : NoParameters {
  using NoParameters::NoParameters;
  T operator()(T x, T y) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T rest = std::fmod(x, y);
      return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    } else {
      if (y == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (y == -1) return 0;
        const T rest = x % y;
        return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
      } else {
        return x % y;
      }
    }
  }
};
template <class T>
struct FmodOf : NoParameters {
  using NoParameters::NoParameters;
  T operator()(T x, T y) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(x, y);
    } else {
      if (y == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (y == -1) return 0;
      }
      return x % y;
    }
  }
};

template <class T>
struct PowOf : NoParameters {
  using NoParameters::NoParameters;
  T operator()(T x, T y) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::pow(x, y);
    } else {
      if constexpr (std::is_signed_v<T>) {
        if (y < 0) return x == 1 ? 1 : (x == -1 ? ((y & 1) != 0 ? T(-1) : T(1)) : T(0));
      }
      Wrapping<T> result = 1;
      auto base = static_cast<Wrapping<T>>(x);
      for (auto rest = static_cast<Wrapping<T>>(y); rest != 0; rest >>= 1) {
        if ((rest & 1U) != 0) result *= base;
        base *= base;
      }
      return static_cast<T>(result);
    }
  }
};

}  // namespace troupe::gpu
