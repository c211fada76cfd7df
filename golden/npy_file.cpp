#include "golden/npy_file.hpp"

#include <map>
#include <regex>

#include "golden/little_endian.hpp"
#include "model/mapped_file.hpp"

namespace golden {
namespace {

using model::DType;
using model::Shape;
using model::throw_input_error;

constexpr uint32_t kMostHeaderBytes = 4096;

const std::map<std::string, DType> kTypes{{"<f8", DType::kF64},
                                          {"<f4", DType::kF32},
                                          {"<f2", DType::kF16},
                                          {"<i8", DType::kI64},
                                          {"<i4", DType::kI32},
                                          {"|u1", DType::kU8},
                                          {"|b1", DType::kU8}};

// The value behind a key of the header, a Python dict literal on one line.
std::string field(const std::string& header,
                  const std::string& key,
                  const std::string& pattern,
                  const std::string& origin) {
  std::smatch match;
  if (!std::regex_search(header, match, std::regex("'" + key + "'\\s*:\\s*" + pattern))) {
    throw_input_error("{}: the npy header has no readable '{}'", origin, key);
  }
  return match[1];
}

Shape parse_shape(const std::string& text, const std::string& origin) {
  Shape shape;
  int64_t size = 1;
  static const std::regex number("[0-9]+");
  for (std::sregex_iterator i(text.begin(), text.end(), number); i != std::sregex_iterator(); ++i) {
    const std::string digits = i->str();
    const int64_t extent = digits.size() > 15 ? -1 : std::stoll(digits);
    if (extent < 0 || __builtin_mul_overflow(size, extent, &size)) {
      throw_input_error("{}: impossible extent {}", origin, printable(digits));
    }
    shape.push_back(extent);
  }
  return shape;
}

}  // namespace

model::TensorView read_npy(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const auto file = model::MappedFile::open(path);
  ByteReader reader(file->bytes(), origin);
  if (reader.num_left() < 8 || reader.text(6) != "\x93NUMPY") {
    throw_input_error("{}: expected a file of numpy.save", origin);
  }
  const auto version = reader.number<uint8_t>();
  reader.take(1);
  if (version != 1 && version != 2) {
    throw_input_error("{}: npy version {}, expected 1 or 2", origin, version);
  }
  const uint32_t header_bytes = version == 1 ? reader.number<uint16_t>() : reader.number<uint32_t>();
  if (header_bytes > kMostHeaderBytes) {
    throw_input_error("{}: an npy header of {} bytes, expected at most {}", origin, header_bytes, kMostHeaderBytes);
  }
  const std::string header = reader.text(header_bytes);
  const std::string descr = field(header, "descr", "'([^']*)'", origin);
  const auto dtype = kTypes.find(descr);
  if (dtype == kTypes.end()) {
    throw_input_error("{}: dtype {}, expected one of <f2 <f4 <f8 <i4 <i8 |u1 |b1", origin, printable(descr));
  }
  if (field(header, "fortran_order", "(True|False)", origin) == "True") {
    throw_input_error("{}: Fortran order, expected C order (numpy.ascontiguousarray)", origin);
  }
  Shape shape = parse_shape(field(header, "shape", "\\(([0-9, ]*)\\)", origin), origin);
  const int64_t width = model::dtype_bytes(dtype->second);
  if (model::num_elements(shape) != static_cast<int64_t>(reader.num_left()) / width ||
      reader.num_left() % static_cast<uint64_t>(width) != 0) {
    throw_input_error("{}: {} {} needs another size than the {} bytes after the header",
                      origin,
                      descr,
                      model::shape_text(shape),
                      reader.num_left());
  }
  const auto bytes = reader.take(reader.num_left());
  if (reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(width) == 0) {
    return {dtype->second, std::move(shape), bytes, file};
  }
  const auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  return {dtype->second, std::move(shape), *copy, copy};
}

}  // namespace golden
