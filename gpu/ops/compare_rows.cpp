#include <utility>

#include "gpu/ops/binary_functions.hpp"
#include "gpu/ops/binary_rows.hpp"

namespace troupe::gpu {
namespace {

#define TROUPE_COMPARISON(Name, expression)                                  \
  template <class T>                                                         \
  struct Name : NoParameters {                                               \
    using NoParameters::NoParameters;                                        \
    std::uint8_t operator()(T x, T y) const { return (expression) ? 1 : 0; } \
  };
TROUPE_COMPARISON(EqualOf, x == y)
TROUPE_COMPARISON(GreaterOf, x > y)
TROUPE_COMPARISON(GreaterOrEqualOf, x >= y)
TROUPE_COMPARISON(LessOf, x < y)
TROUPE_COMPARISON(LessOrEqualOf, x <= y)
// On bytes: anything but 0 is true.
TROUPE_COMPARISON(AndOf, x != 0 && y != 0)
TROUPE_COMPARISON(OrOf, x != 0 || y != 0)
TROUPE_COMPARISON(XorOf, (x != 0) != (y != 0))
TROUPE_COMPARISON(SameOf, (x != 0) == (y != 0))
#undef TROUPE_COMPARISON

template <class T, class F>
void CompareRow(const Row& row) {
  BinaryBody<T, std::uint8_t, F>::Run(row);
}

template <class T>
RowFunction Find(std::string_view op) {
  if (op == "Equal") return &CompareRow<T, EqualOf<T>>;
  if (op == "Greater") return &CompareRow<T, GreaterOf<T>>;
  if (op == "GreaterOrEqual") return &CompareRow<T, GreaterOrEqualOf<T>>;
  if (op == "Less") return &CompareRow<T, LessOf<T>>;
  if (op == "LessOrEqual") return &CompareRow<T, LessOrEqualOf<T>>;
  return nullptr;
}

RowFunction FindLogic(std::string_view op) {
  using U = std::uint8_t;
  if (op == "And") return &CompareRow<U, AndOf<U>>;
  if (op == "Or") return &CompareRow<U, OrOf<U>>;
  if (op == "Xor") return &CompareRow<U, XorOf<U>>;
  if (op == "Equal") return &CompareRow<U, SameOf<U>>;
  return nullptr;
}

}  // namespace

RowFunction FindCompareRow(std::string_view op, proto::DataType type) {
  if (type == proto::BOOL) return FindLogic(op);
  return ForWideType(type, [&](auto zero) -> RowFunction { return Find<decltype(zero)>(op); });
}

}  // namespace troupe::gpu
