// dsv3-device-check: the same launches on the first CUDA device and in the emulation of a Hopper, compared. Prints one JSON.
#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tools/common.hpp"
#include "tools/device_check/case_result.hpp"
#include "tools/device_check/cublas_check.hpp"

namespace tools {
namespace {

// Element `index` as an integer of which neighbours are neighbouring numbers; for integers the number itself is as good.
int64_t place_of(const CaseResult& result, size_t index) {
  uint32_t bits = 0;
  const auto element_bytes = static_cast<size_t>(result.element_bytes);
  std::memcpy(&bits, result.bytes.data() + index * element_bytes, element_bytes);
  bits <<= 32 - 8 * element_bytes;
  const auto magnitude = static_cast<int64_t>((bits & 0x7FFFFFFFU) >> (32 - 8 * element_bytes));
  return (bits & 0x80000000U) != 0 ? -magnitude : magnitude;
}

int64_t largest_distance(const CaseResult& a, const CaseResult& b) {
  int64_t largest = 0;
  for (size_t i = 0; i < a.bytes.size() / static_cast<size_t>(a.element_bytes); ++i) {
    largest = std::max(largest, std::abs(place_of(a, i) - place_of(b, i)));
  }
  return largest;
}

int run() {
  const std::string device = device_name();
  const auto on_device = run_cases_on_device();
  const auto emulated = run_cases_emulated();
  nlohmann::ordered_json out{{"device", device}, {"cases", nlohmann::ordered_json::array()}};
  bool all_pass = true;
  for (size_t i = 0; i < on_device.size(); ++i) {
    const int64_t steps = largest_distance(on_device[i], emulated[i]);
    const bool passes = steps <= (on_device[i].is_exact ? 0 : 1);
    all_pass = all_pass && passes;
    out["cases"].push_back({{"name", on_device[i].name},
                            {"is_exact", on_device[i].is_exact},
                            {"largest_distance_steps", steps},
                            {"passes", passes}});
  }
  out["cublaslt"] = check_cublas();
  all_pass = all_pass && out["cublaslt"].value("passes", true);  // a missing library is no fault of ours
  out["passes"] = all_pass;
  fmt::print("{}\n", out.dump(1));
  return all_pass ? kExitOk : kExitCheckFailed;
}

}  // namespace
}  // namespace tools

int main() {
  try {
    return tools::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "dsv3-device-check: {}\n", error.what());
    return tools::kExitBadInput;
  }
}
