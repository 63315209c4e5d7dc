// INFER BODY: the body of one inference request as it arrives: JSON (its first `header_length` bytes, or all),
// then raw inputs, which go where they will be read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/http_body.hpp"
#include "gateway/infer_request.hpp"
#include "gateway/inference_service.hpp"

namespace troupe::gateway {

class InferBody {
 public:
  // `header_length`: as the request's head says; 0: all of the body is raw.
  InferBody(std::shared_ptr<const FunctionInfo> function, InferenceService& service, SharedClient client,
            std::optional<std::uint64_t> header_length)
      : function_(std::move(function)),
        service_(service),
        client_(std::move(client)),
        header_length_(header_length) {}

  // As in HttpExchange.
  absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t remaining);
  // After the last byte: whether the JSON is sound. Any thread may go on from here, one at a time.
  [[nodiscard]] absl::Status Finish();
  // Next: copies what lies in shared memory, and says whether the bytes are sound.
  [[nodiscard]] absl::Status Fill();
  // Fill, or the answer, copies between this process and shared memory.
  [[nodiscard]] bool copies_inputs() const { return !parsed_->shared_inputs.empty(); }
  [[nodiscard]] bool copies_outputs() const;
  // With copies only.
  [[nodiscard]] SharedMemory& memory() const { return client_.memory(); }

  // From a sound end on, until Drop.
  [[nodiscard]] ParsedInfer& parsed() { return *parsed_; }
  // Of all of the body, and of the sequence that the request belongs to.
  [[nodiscard]] std::string Fingerprint() const;
  // Gives the memory of the text back, which nothing reads any more.
  void DropText() { json_.Drop(); }
  // Also the places of its inputs.
  void Drop();

 private:
  absl::Status Parse(std::uint64_t raw_bytes);
  void PlaceGathered();

  const std::shared_ptr<const FunctionInfo> function_;
  InferenceService& service_;
  const SharedClient client_;
  const std::optional<std::uint64_t> header_length_;
  bool begun_ = false;
  std::uint64_t json_left_ = 0;
  TextBody json_;
  std::optional<ParsedInfer> parsed_;
  // Raw inputs beyond kGatheredFrom wait in memory of their own until half of them has arrived. Only then are
  // places taken for all of them, so that a client never holds more of the arena than twice what it has sent.
  TextBody gathered_;
  std::uint64_t gather_left_ = 0;
  std::size_t next_raw_ = 0;    // the raw input whose bytes come next
  std::size_t raw_placed_ = 0;  // of its bytes are in place
};

}  // namespace troupe::gateway
