// Files as torch.save lays them out, put together by hand: zip archives of stored entries and pickles opcode by opcode.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/tensor_view.hpp"

namespace torch_fixture {

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

using Entries = std::vector<std::pair<std::string, std::string>>;

// Checksums are 0: the reader does not look at them. `method` 8 would be a compressed entry.
inline std::string zip_of(const Entries& entries, uint16_t method = 0) {
  std::string file;
  std::string directory;
  for (const auto& [name, data] : entries) {
    const std::string sizes = raw(static_cast<uint32_t>(data.size())) + raw(static_cast<uint32_t>(data.size()));
    const std::string common = raw<uint16_t>(0) + raw(method) + raw<uint32_t>(0) + raw<uint32_t>(0) + sizes +
                               raw(static_cast<uint16_t>(name.size()));
    directory += raw<uint32_t>(0x02014b50) + raw<uint32_t>(0) + common + std::string(12, '\0') +
                 raw(static_cast<uint32_t>(file.size())) + name;
    file += raw<uint32_t>(0x04034b50) + raw<uint16_t>(0) + common + raw<uint16_t>(0) + name + data;
  }
  const auto count = static_cast<uint16_t>(entries.size());
  return file + directory + raw<uint32_t>(0x06054b50) + raw<uint32_t>(0) + raw(count) + raw(count) +
         raw(static_cast<uint32_t>(directory.size())) + raw(static_cast<uint32_t>(file.size())) + raw<uint16_t>(0);
}

inline std::string text(const std::string& value) {
  return std::string("X") + raw(static_cast<uint32_t>(value.size())) + value;
}
inline std::string integer(int64_t value) {
  return std::string("\x8a\x08") + raw(value);
}
inline std::string global(const std::string& module, const std::string& name) {
  return std::string("c") + module + "\n" + name + "\n";
}
inline std::string tuple(const std::vector<int64_t>& values) {
  std::string result = "(";
  for (const int64_t value : values) {
    result += integer(value);
  }
  return result + "t";
}

struct TensorArguments {
  std::string storage = "FloatStorage";
  std::string key = "0";
  int64_t storage_len = 0;
  int64_t offset = 0;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};
};

inline std::string tensor(const TensorArguments& a) {
  return global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") + global("torch", a.storage) +
         text(a.key) + text("cpu") + integer(a.storage_len) + "tQ" + integer(a.offset) + tuple(a.shape) +
         tuple(a.strides) + "\x89" + global("collections", "OrderedDict") + ")RtR";
}

inline std::string torch_file(const std::string& pickle, const Entries& storages) {
  Entries entries{{"x/data.pkl", std::string("\x80\x02") + pickle + "."}};
  for (const auto& [key, data] : storages) {
    entries.emplace_back(std::string("x/data/") + key, data);
  }
  return zip_of(entries);
}

using Tensors = std::vector<std::pair<std::string, model::TensorView>>;

// A dictionary of tensors; a name "a[0]" is the only element of a list, "a[1]" its second, after "a[0]".
inline std::string torch_file(const Tensors& tensors) {
  std::string pickle = "}(";
  Entries storages;
  std::string open;  // the list being filled
  for (const auto& [name, value] : tensors) {
    std::string storage = "FloatStorage";
    if (value.dtype == model::DType::kBF16) {
      storage = "BFloat16Storage";
    } else if (value.dtype != model::DType::kF32) {
      storage = value.dtype == model::DType::kI64 ? "LongStorage" : "IntStorage";
    }
    std::vector<int64_t> strides(value.shape.size(), 1);
    for (size_t i = strides.size(); i-- > 1;) {
      strides[i - 1] = strides[i] * value.shape[i];
    }
    const std::string key = std::to_string(storages.size());
    storages.emplace_back(key, std::string(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()));
    const std::string list = name.ends_with("]") ? name.substr(0, name.size() - 3) : "";
    if (!open.empty() && list != open) {
      pickle += "t";
    }
    if (list.empty()) {
      pickle += text(name);
    } else if (list != open) {
      pickle += text(list) + "(";
    }
    open = list;
    pickle += tensor({storage, key, value.size(), 0, value.shape, strides});
  }
  return torch_file(pickle + (open.empty() ? "" : "t") + "u", storages);
}

// {"value": tensor, "meta": {"step": 3}}, as SGLang's dumper writes it.
inline std::string value_file(const model::TensorView& value) {
  const std::string one = torch_file(Tensors{{"value", value}});
  const size_t begin = one.find('}');
  const size_t end = one.rfind("u.", one.find("x/data/0") - 1);
  const std::string pickle = one.substr(begin, end - begin) + text("meta") + "}(" + text("step") + integer(3) + "uu";
  return torch_file(pickle,
                    {{"0", std::string(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size())}});
}

}  // namespace torch_fixture
