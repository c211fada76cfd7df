// Fits the families of linear layers to op records, for a device that no published table is about.
#pragma once

#include <filesystem>

#include "simulator/calibration.hpp"

namespace simulator {

// Rows of kind "linear" with a measured time: F8_E4M3 feeds gemm_fp8, BF16 gemm_bf16; bytes and FLOPs are those of the rows. The
// calibration has the hardware's name. Throws InputError: no such row, or fewer than 5 for a family that has any.
Calibration calibrate_records(const std::filesystem::path& records, const Hardware& hardware);

}  // namespace simulator
