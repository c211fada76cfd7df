// Writes a dump that dsv3-verify reads (--format dsv3). To be copied into any C++17 engine: it needs nothing of this project.
//
//   dump_writer::Dump dump;
//   dump.add("p7", "layer.0.attn.q_a", "BF16", {7, 1536}, data, num_bytes);  // host memory, row-major, little-endian
//   dump.write("mine.safetensors");
//
// `dsv3-verify list-required dsv3` lists the names and shapes; dtypes are F64 F32 BF16 F16 F8_E4M3 I64 I32 U8.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace dump_writer {

class Dump {
 public:
  // Copies the bytes.
  void add(const std::string& case_name,
           const std::string& op,
           const std::string& dtype,
           const std::vector<int64_t>& shape,
           const void* data,
           size_t num_bytes) {
    std::string extents;
    for (const int64_t extent : shape) {
      extents += (extents.empty() ? "" : ",") + std::to_string(extent);
    }
    const size_t begin = data_.size();
    data_.append(static_cast<const char*>(data), num_bytes);
    header_ += (header_.empty() ? "{\"" : ",\"") + case_name + "/" + op + "\":{\"dtype\":\"" + dtype +
               "\",\"shape\":[" + extents + "],\"data_offsets\":[" + std::to_string(begin) + "," +
               std::to_string(data_.size()) + "]}";
  }

  void write(const std::string& path) const {
    std::string header = header_.empty() ? "{}" : header_ + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    std::string prefix(sizeof(length), '\0');
    std::memcpy(prefix.data(), &length, sizeof(length));
    std::ofstream file(path, std::ios::binary);
    if (!(file << prefix << header << data_) || !file.flush()) {
      throw std::runtime_error("cannot write " + path);
    }
  }

 private:
  std::string header_;
  std::string data_;
};

}  // namespace dump_writer
