#include "golden/torch_file.hpp"

#include <cstring>

#include "golden/little_endian.hpp"
#include "golden/pickle.hpp"
#include "golden/zip_file.hpp"

namespace golden {
namespace {

using model::Shape;
using model::TensorView;
using model::throw_input_error;

class TorchReader {
 public:
  explicit TorchReader(const std::filesystem::path& path)
      : origin_(path.string()), zip_(read_zip(path)), copies_left_(4 * zip_.num_bytes + (int64_t{64} << 20)) {
    for (const auto& [name, bytes] : zip_.entries) {
      if (name.ends_with("/data.pkl")) {
        root_ = name.substr(0, name.size() - std::string_view("data.pkl").size());
      }
    }
    if (root_.empty()) {
      throw_input_error("{}: expected a file of torch.save, the zip file holds no data.pkl", origin_);
    }
    const auto order = zip_.entries.find(root_ + "byteorder");
    if (order != zip_.entries.end() && ByteReader(order->second, origin_).text(order->second.size()) != "little") {
      throw_input_error("{}: expected little-endian numbers", origin_);
    }
  }

  std::vector<std::pair<std::string, TensorView>> tensors() {
    std::vector<std::pair<std::string, TensorView>> result;
    for (auto& [name, pickled] : read_pickle(zip_.entries.at(root_ + "data.pkl"), origin_)) {
      TensorView tensor = rebuild(pickled, name);
      result.emplace_back(std::move(name), std::move(tensor));
    }
    return result;
  }

 private:
  [[noreturn]] void impossible(const std::string& name, const std::string& what) const {
    throw_input_error("{}: tensor \"{}\": {}", origin_, printable(name), what);
  }

  TensorView rebuild(const PickledTensor& pickled, const std::string& name) {
    const auto entry = zip_.entries.find(root_ + "data/" + pickled.storage_key);
    if (entry == zip_.entries.end()) {
      impossible(name, "its storage " + printable(pickled.storage_key) + " is not in the file");
    }
    const int64_t width = model::dtype_bytes(pickled.dtype);
    const auto num_stored = static_cast<int64_t>(entry->second.size()) / width;
    if (pickled.storage_len < 0 || pickled.storage_len > num_stored) {
      impossible(name,
                 fmt::format("its storage should hold {} elements and holds {}", pickled.storage_len, num_stored));
    }
    const int64_t size = checked_size(pickled, num_stored, name);
    if (size == 0) {
      return {pickled.dtype, pickled.shape, {}, zip_.owner};
    }
    const std::byte* first = entry->second.data() + pickled.offset * width;
    const bool aligned = reinterpret_cast<uintptr_t>(first) % static_cast<uintptr_t>(width) == 0;
    if (aligned && is_contiguous(pickled)) {
      return {pickled.dtype, pickled.shape, {first, static_cast<size_t>(size * width)}, zip_.owner};
    }
    // Expanded tensors can be far larger than their storage, and a hostile file may hold many of them.
    if (size > copies_left_ / width) {
      impossible(name, "overlapping views that would need more memory than the file accounts for");
    }
    copies_left_ -= size * width;
    return copied(pickled, size, first);
  }

  // The number of elements, all of which lie in the storage.
  int64_t checked_size(const PickledTensor& pickled, int64_t num_stored, const std::string& name) const {
    const Shape& shape = pickled.shape;
    if (shape.size() != pickled.strides.size() || pickled.offset < 0) {
      impossible(name, "extents, strides and offset do not fit each other");
    }
    int64_t size = 1;
    int64_t last = pickled.offset;
    bool fits = true;
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t reach = 0;
      fits = fits && shape[i] >= 0 && pickled.strides[i] >= 0 && !__builtin_mul_overflow(size, shape[i], &size) &&
             (shape[i] == 0 || (!__builtin_mul_overflow(shape[i] - 1, pickled.strides[i], &reach) &&
                                !__builtin_add_overflow(last, reach, &last)));
    }
    if (!fits || (size > 0 && last >= num_stored)) {
      impossible(name, fmt::format("reaches beyond the {} elements of its storage", num_stored));
    }
    return size;
  }

  static bool is_contiguous(const PickledTensor& pickled) {
    int64_t expected = 1;
    for (size_t i = pickled.shape.size(); i-- > 0;) {
      if (pickled.shape[i] != 1 && pickled.strides[i] != expected) {
        return false;
      }
      expected *= pickled.shape[i];
    }
    return true;
  }

  static TensorView copied(const PickledTensor& pickled, int64_t size, const std::byte* first) {
    const auto width = static_cast<size_t>(model::dtype_bytes(pickled.dtype));
    auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(size) * width);
    Shape at(pickled.shape.size(), 0);
    int64_t source = 0;
    for (int64_t i = 0; i < size; ++i) {
      std::memcpy(bytes->data() + static_cast<size_t>(i) * width, first + static_cast<size_t>(source) * width, width);
      for (size_t d = at.size(); d-- > 0;) {
        source += pickled.strides[d];
        if (++at[d] < pickled.shape[d]) {
          break;
        }
        source -= pickled.strides[d] * at[d];
        at[d] = 0;
      }
    }
    return {pickled.dtype, pickled.shape, *bytes, bytes};
  }

  std::string origin_;
  ZipFile zip_;
  std::string root_;     // "archive/"
  int64_t copies_left_;  // bytes
};

}  // namespace

std::vector<std::pair<std::string, TensorView>> read_torch_file(const std::filesystem::path& path) {
  return TorchReader(path).tensors();
}

}  // namespace golden
