// What an interrupted recording has computed so far: the output of every op, appended to a file as it is made, so that a second run of
// the same command reads it instead of computing it again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "model/tensor_view.hpp"

namespace tools {

class RecordJournal {
 public:
  // `identity`: everything that decides the outputs. Opens the file, or begins it. Throws InputError if it belongs to another run or
  // cannot be written. What was cut off in the middle of an entry is dropped.
  RecordJournal(std::filesystem::path path, const std::string& identity);

  [[nodiscard]] int64_t num_known() const { return static_cast<int64_t>(entries_.size()); }
  // The output kept under a key, or false. Throws InputError if its bytes are not those that were written.
  bool read(const std::string& key, model::TensorView& output);
  void append(const std::string& key, const model::TensorView& output);
  // The run is complete: deletes the file.
  void remove();

 private:
  struct Entry {
    model::DType dtype;
    model::Shape shape;
    int64_t begin;  // of the bytes in the file
    int64_t num_bytes;
    std::string hash;
  };
  static std::optional<std::pair<std::string, Entry>> parsed(const std::string& line, int64_t begin);

  std::filesystem::path path_;
  std::map<std::string, Entry> entries_;
  std::fstream file_;
};

}  // namespace tools
