// Tensors of an ONNX file as constants: every element type, raw or typed data, data in files beside the
// model.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "gpu/import/graph.hpp"
#include "gpu/import/onnx_reader.hpp"

namespace onnx {
class TensorProto;
}

namespace troupe::gpu {

// Element types of TensorProto::DataType; DATA_TYPE_UNSPECIFIED for what Troupe has no name for (complex,
// undefined).
[[nodiscard]] proto::DataType DataTypeOfOnnx(int onnx_type);

// Takes the contents out of `tensor`. `where` names the tensor in errors: "initialiser 'w'".
[[nodiscard]] absl::StatusOr<Constant> TakeTensor(onnx::TensorProto& tensor, const ImportOptions& options,
                                                  const std::string& where);

}  // namespace troupe::gpu
