// Row functions of the binary operators, by name.
#pragma once

#include <string_view>

#include "gpu/ops/broadcast_loop.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// Result of the inputs' type: Add, Sub, Mul, Div, Max, Min, PRelu, Mod, Fmod (Mod with fmod=1), Pow. Wide
// types only.
[[nodiscard]] RowFunction FindArithmeticRow(std::string_view op, proto::DataType type);
// Result of type BOOL: Equal, Greater, GreaterOrEqual, Less, LessOrEqual on wide types; And, Or, Xor, Equal
// on BOOL.
[[nodiscard]] RowFunction FindCompareRow(std::string_view op, proto::DataType type);

// NumPy broadcasting of every present input.
absl::StatusOr<Shape> BroadcastAll(const StepContext& ctx, Infos in);

}  // namespace troupe::gpu
