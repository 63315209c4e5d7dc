// An upload of a model with the files of its weights: a tar archive, read where it lies, and the ONNX file in it imported with them.
// The sums of the headers are made right first, since libFuzzer would seldom find one.
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "base/tar.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/model_archive.hpp"

namespace {

constexpr std::size_t kSum = 148;  // where a header has it, eight bytes
constexpr std::size_t kMagic = 257;

std::string WithSums(std::string archive) {
  for (std::size_t at = 0; at + troupe::kTarBlock <= archive.size(); at += troupe::kTarBlock) {
    if (std::string_view(archive).substr(at + kMagic, 5) != "ustar") continue;
    std::memset(archive.data() + at + kSum, ' ', 8);
    unsigned sum = 0;
    for (std::size_t i = 0; i < troupe::kTarBlock; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    std::snprintf(archive.data() + at + kSum, 8, "%06o", sum);
  }
  return archive;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const std::string file = WithSums({reinterpret_cast<const char*>(data), size});
  const auto bytes = std::as_bytes(std::span(file));
  const auto archive = gpu::OpenModelArchive(bytes);
  if (!archive.ok() || archive->files.empty()) return 0;
  for (const auto& [path, content] : archive->files)
    TROUPE_CHECK(content.empty() || (content.data() >= bytes.data() &&
                                     content.data() + content.size() <= bytes.data() + bytes.size()),
                 "a file lies inside its archive");
  gpu::ImportOptions options;
  options.opened = archive->files;
  options.max_nodes = 50;
  options.max_weights = MiB(1);
  options.max_folded = KiB(64);
  options.folding = {std::uint64_t{1} << 16, MiB(1)};
  try {
    gpu::ImportOnnx(archive->onnx, options).IgnoreError();
  } catch (const std::exception&) {
    // troupe-import catches it too, and refuses the file.
  }
  return 0;
}
