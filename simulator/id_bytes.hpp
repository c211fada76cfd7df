// Expert ids as engines send them over the wire: base64 of numbers, bare or as a .npy file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace simulator {

// Throws InputError that opens with `where`. With or without padding.
std::string decode_base64(std::string_view text, const std::string& where);

// Little-endian numbers. dtype: "uint8", "int16", "uint16", "int32", "int64". Throws InputError.
std::vector<int64_t> read_ids(std::string_view bytes, std::string_view dtype, const std::string& where);

struct IdArray {
  std::vector<size_t> shape;
  std::vector<int64_t> ids;  // in C order
};

// The file that numpy.save writes, versions 1.0 and 2.0, C order, whole numbers (numpy/lib/format.py describes it). Throws InputError.
IdArray parse_npy(std::string_view bytes, const std::string& where);

}  // namespace simulator
