#include "model/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "model/mapped_file.hpp"
#include "model/printable.hpp"
#include "model/strict_json.hpp"

namespace model {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadataName = "__metadata__";
constexpr size_t kLengthBytes = 8;
// Holds the 140,000 tensors of Kimi-K2 in one header (20 MB), and takes less than a second. The format's own library allows
// 100 MB.
constexpr uint64_t kMaxHeaderBytes = 32'000'000;
// Of unaligned tensors, in one file.
constexpr int64_t kMaxCopiedBytes = int64_t{1} << 28;
// {name: {"shape": [...]}}
constexpr size_t kHeaderDepth = 3;

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  int64_t begin;  // bytes, from the end of the header
  int64_t end;
};

std::string_view header_text(const MappedFile& file, const std::string& origin) {
  const std::string_view text = file.text();
  if (text.size() < kLengthBytes) {
    throw_input_error("{}: not a safetensors file: {} bytes, expected at least {}", origin, text.size(), kLengthBytes);
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
  }
  if (length > text.size() - kLengthBytes) {
    throw_input_error(
        "{}: file ends at byte {}, but its first 8 bytes promise a header of {} bytes; cut short or not safetensors",
        origin,
        text.size(),
        length);
  }
  if (length > kMaxHeaderBytes) {
    throw_input_error("{}: header of {} bytes, expected at most {}", origin, length, kMaxHeaderBytes);
  }
  return text.substr(kLengthBytes, length);
}

std::optional<int64_t> non_negative_integer(const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

// Empty unless `value` is an array of non-negative integers.
std::optional<std::vector<int64_t>> non_negative_integers(const json& value) {
  if (!value.is_array()) {
    return std::nullopt;
  }
  std::vector<int64_t> numbers;
  for (const json& element : value) {
    const auto number = non_negative_integer(element);
    if (!number) {
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

// Empty on overflow.
std::optional<int64_t> tensor_bytes(DType dtype, const Shape& shape) {
  int64_t num_bytes = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(num_bytes, extent, &num_bytes)) {
      return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(num_bytes, dtype_bytes(dtype), &num_bytes)) {
    return std::nullopt;
  }
  return num_bytes;
}

Entry parse_entry(const std::string& name, const json& fields, const std::string& origin) {
  const std::string where = fmt::format("{}: tensor {}", origin, printable(name));
  if (!fields.is_object() || fields.size() != 3 || !fields.contains("dtype") || !fields.contains("shape") ||
      !fields.contains("data_offsets")) {
    throw_input_error(
        "{}: expected an object of dtype, shape and data_offsets, found {}", where, printable(fields.dump()));
  }
  const json& dtype_field = fields["dtype"];
  const auto dtype = dtype_field.is_string() ? parse_dtype(dtype_field.get_ref<const std::string&>()) : std::nullopt;
  if (!dtype) {
    throw_input_error("{}: unknown dtype {}", where, printable(dtype_field.dump()));
  }
  auto shape = non_negative_integers(fields["shape"]);
  if (!shape) {
    throw_input_error("{}: shape must be non-negative integers, found {}", where, printable(fields["shape"].dump()));
  }
  const auto offsets = non_negative_integers(fields["data_offsets"]);
  if (!offsets || offsets->size() != 2 || offsets->front() > offsets->back()) {
    throw_input_error("{}: data_offsets must be two ascending non-negative integers, found {}",
                      where,
                      printable(fields["data_offsets"].dump()));
  }
  const auto num_bytes = tensor_bytes(*dtype, *shape);
  if (!num_bytes) {
    throw_input_error("{}: shape {} has too many elements", where, printable(shape_text(*shape)));
  }
  if (offsets->back() - offsets->front() != *num_bytes) {
    throw_input_error("{}: {} {} takes {} bytes, but its data_offsets span {}",
                      where,
                      dtype_name(*dtype),
                      printable(shape_text(*shape)),
                      *num_bytes,
                      offsets->back() - offsets->front());
  }
  return {name, *dtype, *std::move(shape), offsets->front(), offsets->back()};
}

std::map<std::string, std::string> parse_metadata(const json& fields, const std::string& origin) {
  std::map<std::string, std::string> metadata;
  if (!fields.is_object()) {
    throw_input_error("{}: {} must be an object of strings", origin, kMetadataName);
  }
  for (const auto& [key, value] : fields.items()) {
    if (!value.is_string()) {
      throw_input_error(
          "{}: {} must be an object of strings, but {} is not one", origin, kMetadataName, printable(key));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// The tensors must tile the rest of the file.
void check_layout(std::vector<Entry>& entries, size_t header_end, size_t file_bytes, const std::string& origin) {
  std::sort(entries.begin(), entries.end(), [](const Entry& left, const Entry& right) {
    return std::pair(left.begin, left.end) < std::pair(right.begin, right.end);
  });
  uint64_t promised = header_end;
  for (const Entry& entry : entries) {
    promised = std::max(promised, header_end + static_cast<uint64_t>(entry.end));
  }
  if (promised > file_bytes) {
    throw_input_error("{}: file ends at byte {}, but its header promises {} bytes", origin, file_bytes, promised);
  }
  int64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin < covered) {
      throw_input_error("{}: tensor {} begins at data byte {} and overlaps the one that ends at {}",
                        origin,
                        printable(entry.name),
                        entry.begin,
                        covered);
    }
    if (entry.begin > covered) {
      throw_input_error("{}: no tensor covers data bytes {} to {}, before tensor {}",
                        origin,
                        covered,
                        entry.begin,
                        printable(entry.name));
    }
    covered = entry.end;
  }
  if (promised < file_bytes) {
    throw_input_error(
        "{}: {} bytes follow the last tensor, which ends at byte {}", origin, file_bytes - promised, promised);
  }
}

// The format allows data at odd offsets, but codes() of a view needs aligned ones: such a tensor is copied.
std::map<std::string, TensorView> views_of(const std::vector<Entry>& entries,
                                           size_t header_end,
                                           const std::shared_ptr<const MappedFile>& file,
                                           const std::string& origin) {
  std::map<std::string, TensorView> views;
  int64_t num_copied_bytes = 0;
  for (const Entry& entry : entries) {
    const int64_t num_bytes = entry.end - entry.begin;
    const auto bytes =
        file->bytes().subspan(header_end + static_cast<size_t>(entry.begin), static_cast<size_t>(num_bytes));
    if (reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(dtype_bytes(entry.dtype)) == 0) {
      views.emplace(entry.name, TensorView{entry.dtype, entry.shape, bytes, file});
      continue;
    }
    num_copied_bytes += num_bytes;
    if (num_copied_bytes > kMaxCopiedBytes) {
      throw_input_error(
          "{}: tensor {} does not begin at a multiple of its element size, and the file is too large to copy",
          origin,
          printable(entry.name));
    }
    auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
    views.emplace(entry.name, TensorView{entry.dtype, entry.shape, *copy, copy});
  }
  return views;
}

std::string header_of(const json& fields, const std::filesystem::path& path) {
  try {
    return fields.dump();
  } catch (const json::exception&) {
    throw_input_error("{}: cannot write: a name or a metadata string is not UTF-8", path.string());
  }
}

}  // namespace

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const auto mapped = MappedFile::open(path);
  const std::string_view header = header_text(*mapped, origin);
  const json fields = parse_strict_json(header, origin + ": header", kHeaderDepth);
  if (!fields.is_object()) {
    throw_input_error("{}: the header must be a JSON object", origin);
  }
  SafetensorsFile file{.path = path, .tensors = {}, .metadata = {}, .header = std::string(header)};
  std::vector<Entry> entries;
  for (const auto& [name, value] : fields.items()) {
    if (name == kMetadataName) {
      file.metadata = parse_metadata(value, origin);
    } else {
      entries.push_back(parse_entry(name, value, origin));
    }
  }
  const size_t header_end = kLengthBytes + header.size();
  check_layout(entries, header_end, mapped->bytes().size(), origin);
  file.tensors = views_of(entries, header_end, mapped, origin);
  return file;
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, TensorView>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  json fields = json::object();
  if (!metadata.empty()) {
    fields[kMetadataName] = metadata;
  }
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    CHECK(name != kMetadataName && !fields.contains(name));
    const auto num_bytes = static_cast<int64_t>(tensor.bytes.size());
    CHECK(tensor_bytes(tensor.dtype, tensor.shape) == num_bytes);
    fields[name] = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + num_bytes}}};
    offset += num_bytes;
  }
  std::string header = header_of(fields, path);
  header.resize((header.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  std::array<std::byte, kLengthBytes> length{};
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<std::byte>(header.size() >> (8 * i));
  }
  AtomicFile file(path);
  file.write(length);
  file.write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : tensors) {
    file.write(tensor.bytes);
  }
  file.commit();
}

}  // namespace model
