// Tensors of a file that torch.save wrote (a .pt zip file). A pickle can run any program when Python loads it; this reader runs
// nothing and refuses everything but tensors and plain containers.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "model/tensor_view.hpp"

namespace golden {

// Tensors with the way to them from the root (golden/pickle.hpp). Bool is U8. Tensors that are not contiguous are copied.
// Throws InputError that names the file and what was refused.
std::vector<std::pair<std::string, model::TensorView>> read_torch_file(const std::filesystem::path& path);

}  // namespace golden
