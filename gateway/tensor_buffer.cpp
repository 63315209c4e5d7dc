#include "gateway/tensor_buffer.hpp"

namespace troupe::gateway {

namespace {

class InlinePlace final : public InputPlace {
 public:
  explicit InlinePlace(std::string bytes) : bytes_(std::move(bytes)) {}
  std::span<std::byte> bytes() override { return std::as_writable_bytes(std::span(bytes_)); }
  proto::TensorRef ToRef() override {
    proto::TensorRef ref;
    ref.set_inlined(std::move(bytes_));
    return ref;
  }

 private:
  std::string bytes_;
};

}  // namespace

InputBuffer InputBuffer::Inline(std::string bytes) {
  return InputBuffer(std::make_unique<InlinePlace>(std::move(bytes)));
}

OutputBuffer OutputBuffer::Inline(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const auto span = std::as_bytes(std::span(*owner));
  return OutputBuffer(span, std::move(owner));
}

}  // namespace troupe::gateway
