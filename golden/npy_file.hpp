// Tensors that numpy.save wrote. Source: numpy/lib/format.py (description of the format, versions 1.0 and 2.0).
#pragma once

#include <filesystem>

#include "model/tensor_view.hpp"

namespace golden {

// Little-endian f2, f4, f8, i4, i8, u1 and bool in C order. Throws InputError for anything else.
model::TensorView read_npy(const std::filesystem::path& path);

}  // namespace golden
