#include <utility>

#include "gpu/ops/arithmetic_vector.hpp"
#include "gpu/ops/binary_functions.hpp"
#include "gpu/ops/binary_rows.hpp"

namespace troupe::gpu {
namespace {

template <class T, class F>
void ArithmeticRow(const Row& row) {
  BinaryBody<T, T, F>::Run(row);
}

template <class T>
RowFunction Find(std::string_view op) {
  static constexpr std::pair<std::string_view, RowFunction> kRows[] = {
      {"Add", &ArithmeticRow<T, AddOf<T>>}, {"Sub", &ArithmeticRow<T, SubOf<T>>},
      {"Mul", &ArithmeticRow<T, MulOf<T>>}, {"Div", &ArithmeticRow<T, DivOf<T>>},
      {"Max", &ArithmeticRow<T, MaxOf<T>>}, {"Min", &ArithmeticRow<T, MinOf<T>>},
      {"Mod", &ArithmeticRow<T, ModOf<T>>}, {"Fmod", &ArithmeticRow<T, FmodOf<T>>},
      {"Pow", &ArithmeticRow<T, PowOf<T>>}, {"PRelu", &ArithmeticRow<T, PReluOf<T>>},
  };
  for (const auto& [name, row] : kRows) {
    if (name == op) return row;
  }
  return nullptr;
}

}  // namespace

RowFunction FindArithmeticRow(std::string_view op, proto::DataType type) {
  if (type == proto::FP32) {
    if (RowFunction row = FindVectorArithmeticRow(op); row != nullptr) return row;
  }
  return ForWideType(type, [&](auto zero) -> RowFunction { return Find<decltype(zero)>(op); });
}

}  // namespace troupe::gpu
