// BY KIND: a value for each kind of GPU. Kinds are small numbers from 0: the number of a name is known where
// names come in (node/gpu_kinds.hpp). Most nodes have GPUs of one kind, whose value stands in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

using KindId = std::uint32_t;

template <class T>
class ByKind {
 public:
  [[nodiscard]] T& At(KindId kind) {
    if (kind == 0) return first_;
    if (others_.size() < kind) others_.resize(kind);
    return others_[kind - 1];
  }
  // Null: nothing was set of this kind.
  [[nodiscard]] const T* Find(KindId kind) const {
    if (kind == 0) return &first_;
    return kind <= others_.size() ? &others_[kind - 1] : nullptr;
  }
  // How many kinds have a value: those from 0.
  [[nodiscard]] KindId size() const { return static_cast<KindId>(others_.size()) + 1; }
  [[nodiscard]] bool IsOfOneKind() const { return others_.empty(); }

 private:
  T first_{};
  std::vector<T> others_{};
};

}  // namespace troupe
