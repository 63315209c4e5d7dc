// A metadata store for a test, and the files that it is made of.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "storage/rocks_metadata_store.hpp"
#include "tests/unit/storage/files.hpp"

namespace troupe::storage {

inline absl::Status PutOne(MetadataStore& store, const std::string& key, std::string value,
                           Table table = Table::kRuns) {
  Batch batch;
  batch.Put(table, key, std::move(value));
  return CommitAndWait(store, std::move(batch));
}

inline std::unique_ptr<RocksMetadataStore> MustOpen(const std::string& directory) {
  auto store = RocksMetadataStore::Open(directory);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

// The largest file of `directory` whose name ends with `suffix`; "" when there is none.
inline std::string FindFile(const std::string& directory, const std::string& suffix) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const bool larger = found.empty() || entry.file_size() > std::filesystem::file_size(found);
    if (entry.path().string().ends_with(suffix) && larger) found = entry.path().string();
  }
  return found;
}

// The bytes of every file except RocksDB's log for people and the text of the lock.
inline std::map<std::string, std::string> FilesOf(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const auto name = entry.path().filename().string();
    if (entry.is_regular_file() && !name.starts_with("LOG") && name != "LOCK" && name != "troupe.lock")
      files[entry.path().string()] = ReadAll(entry.path().string());
  }
  return files;
}

// Makes `copy` the same as `original`.
inline void CopyStore(const std::string& original, const std::string& copy) {
  std::filesystem::remove_all(copy);
  std::filesystem::copy(original, copy, std::filesystem::copy_options::recursive);
}

}  // namespace troupe::storage
