#include "gateway/infer_body.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/digest.hpp"
#include "base/status.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {
namespace {

constexpr std::uint64_t kGatheredFrom = 64 * 1024;

absl::Status HeaderTooLong(std::uint64_t body) {
  return absl::InvalidArgumentError(
      Cat("Inference-Header-Content-Length is larger than the body of ", body, " bytes"));
}

}  // namespace

absl::StatusOr<std::span<std::byte>> InferBody::NextSpan(std::uint64_t remaining) {
  if (!begun_) {
    begun_ = true;
    json_left_ = header_length_.value_or(remaining);
    if (json_left_ > remaining) return HeaderTooLong(remaining);
  }
  if (json_left_ > 0) {
    const auto span = json_.Next(json_left_);
    json_left_ -= span.size();
    return span;
  }
  if (gather_left_ > 0) {
    const auto span = gathered_.Next(gather_left_);
    gather_left_ -= span.size();
    return span;
  }
  if (!parsed_) {
    if (gathered_.text().empty() && remaining > kGatheredFrom) {
      gather_left_ = remaining / 2;
      return NextSpan(remaining);
    }
    if (absl::Status status = Parse(gathered_.text().size() + remaining); !status.ok()) return status;
    PlaceGathered();
  }
  // The sum of the raw inputs was checked against what remains.
  const auto span = parsed_->raw_inputs[next_raw_].span.subspan(raw_placed_);
  ++next_raw_;
  raw_placed_ = 0;
  return span;
}

absl::Status InferBody::Finish() {
  return parsed_ ? absl::OkStatus() : Parse(0);
}

absl::Status InferBody::Fill() {
  if (copies_inputs()) TROUPE_RETURN_IF_ERROR(CopySharedInputs(*parsed_, memory()));
  return CheckRawInputs(*parsed_);
}

bool InferBody::copies_outputs() const {
  return std::ranges::any_of(parsed_->outputs, [](const OutputWish& wish) { return wish.shared.valid(); });
}

absl::Status InferBody::Parse(std::uint64_t raw_bytes) {
  const bool raw = header_length_ == std::uint64_t{0};
  auto parsed = raw ? ParseRawRequest(*function_, service_, raw_bytes)
                    : ParseInferRequest(json_.text(), *function_, service_, raw_bytes, &client_);
  if (!parsed.ok()) return parsed.status();
  parsed_ = std::move(parsed).value();
  return absl::OkStatus();
}

// What was gathered goes to the beginning of the raw inputs' places.
void InferBody::PlaceGathered() {
  std::string_view rest = gathered_.text();
  while (!rest.empty()) {
    const auto span = parsed_->raw_inputs[next_raw_].span.subspan(raw_placed_);
    const std::size_t count = std::min(span.size(), rest.size());
    std::memcpy(span.data(), rest.data(), count);
    rest.remove_prefix(count);
    raw_placed_ += count;
    if (count < span.size()) break;
    ++next_raw_;
    raw_placed_ = 0;
  }
  gathered_.Drop();
}

std::string InferBody::Fingerprint() const {
  Sha256 digest;
  digest.Update(Cat(json_.text().size(), "\n"));
  digest.Update(json_.text());
  if (const Sequence& sequence = parsed_->call.sequence; !sequence.id.empty())
    digest.Update(Cat(sequence.id, sequence.start ? " start" : "", sequence.end ? " end\n" : "\n"));
  for (const RawInput& raw : parsed_->raw_inputs) digest.Update(std::span<const std::byte>(raw.span));
  for (const SharedInput& shared : parsed_->shared_inputs)
    digest.Update(std::span<const std::byte>(parsed_->call.inputs[shared.input].data.bytes()));
  return digest.Finish();
}

void InferBody::Drop() {
  DropText();
  parsed_.reset();
}

}  // namespace troupe::gateway
