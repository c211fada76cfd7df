// What a pickle of torch.save may hold: plain values, and the few names that stand for tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/dtype.hpp"

namespace golden::pickled {

enum class Kind { kLeaf, kInteger, kText, kTuple, kList, kDict, kGlobal, kStorage, kTensor, kMark };

// Values refer to each other by index into one vector: shared and even cyclic values are freed like any others.
using Index = uint32_t;

struct Node {
  Kind kind = Kind::kLeaf;
  int64_t integer = 0;            // value; storage: its elements; tensor: index into tensors
  std::string text = {};          // value; global: dotted name; storage: key
  std::vector<Index> items = {};  // of a container; dict: key, value, key, value, ...
  std::optional<model::DType> dtype =
      std::nullopt;  // storage, and global that names a storage or a dtype; empty: bytes without type
};

// Names of storage types and dtypes. Storages of bytes without type have no dtype.
const std::map<std::string, std::optional<model::DType>>& typed_globals();

inline constexpr std::string_view kRebuildTensor2 = "torch._utils._rebuild_tensor_v2";
inline constexpr std::string_view kRebuildTensor3 =
    "torch._utils._rebuild_tensor_v3";  // the dtype is an argument of its own
inline constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";
inline constexpr std::string_view kOrderedDict = "collections.OrderedDict";

}  // namespace golden::pickled
