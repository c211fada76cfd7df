// What a GPU and its links can do at most, as data: each figure with its source. Nothing measured, nothing about efficiency.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace simulator {

struct Figure {
  double value = 0;
  std::string source;
};

// Kernels are written for a generation: what they reach of the peaks carries over best within one.
enum class Generation { kBeforeFp8, kHopper, kBlackwell };

struct Hardware {
  std::string name;  // as the user gave it
  std::string title;
  Figure bf16_dense_tflops;
  std::optional<Figure> fp8_dense_tflops;  // absent: FP8 weights are multiplied as BF16
  Figure memory_gb;
  Figure memory_gb_per_s;
  Figure nvlink_gb_per_s;     // one direction
  Figure nvlink_domain_gpus;  // GPUs that reach one another over NVLink
  Figure nic_gb_per_s;        // network of one GPU, one direction
  // By what the file says: FP8, and NVLink of 800 GB/s or more. A what-if with other rates keeps its generation.
  Generation generation = Generation::kBeforeFp8;
};

// The text of a hardware file: one object with "title" and, under the names above, {"value": number, "source": text}. `origin`
// opens every message. Throws InputError naming the field.
Hardware parse_hardware(std::string_view json_text, const std::string& name, const std::string& origin);

// "a100, b200, ...": the files that are compiled in.
std::string built_in_hardware_names();

// A built-in name or the path of a hardware file. Throws InputError.
Hardware load_hardware(const std::string& name_or_path);

}  // namespace simulator
