// An ONNX file, imported in this process: read, checked, folded and laid out, as troupe-import does it in its
// jail. The limits are small, so that an input costs milliseconds at most.
#include <exception>
#include <span>

#include "base/check.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/model_check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  static const gpu::ImportOptions& options = *[] {
    auto* small = new gpu::ImportOptions();
    small->max_nodes = 200;
    small->max_weights = MiB(1);
    small->max_folded = KiB(64);
    small->folding = {std::uint64_t{1} << 18, MiB(1)};
    return small;
  }();
  try {
    const auto imported = gpu::ImportOnnx(std::as_bytes(std::span(data, size)), options);
    if (!imported.ok()) return 0;
    TROUPE_CHECK(gpu::CheckModel(imported->model, imported->weights.size()).ok(),
                 "what is imported is sound");
  } catch (const std::exception&) {
    // troupe-import catches it too, and refuses the file.
  }
  return 0;
}
