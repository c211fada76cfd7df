#include "simulator/hardware_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace simulator {
namespace {

constexpr double kBitsOfByte = 8;

// Times as much, or a value of its own.
void change(Figure& figure, const std::string& text, const char* flag, bool takes_bits) {
  if (text.empty()) {
    return;
  }
  const bool is_factor = text.front() == 'x';
  const bool is_bits = takes_bits && text.back() == 'G';
  const char* begin = text.data() + (is_factor ? 1 : 0);
  const char* end = text.data() + text.size() - (is_bits ? 1 : 0);
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || !(value > 0) || value > 1e9 || (is_factor && is_bits)) {
    model::throw_input_error("{} {}: expected a factor like x1.4 or a number{}",
                             flag,
                             model::printable(text),
                             takes_bits ? " of GB/s, or of Gb/s like 800G" : "");
  }
  figure.value = is_factor ? figure.value * value : is_bits ? value / kBitsOfByte : value;
  figure.source = fmt::format("{} {}", flag, text);
}

// Which constant of a family is the share of the FP8 peak that products with weights reach.
std::optional<size_t> fp8_math_constant(OpFamily family) {
  switch (family) {
    case OpFamily::kGemmFp8:
    case OpFamily::kExperts: return 2;
    case OpFamily::kAttentionBf16:
    case OpFamily::kAttentionFp8: return 4;
    default: return std::nullopt;
  }
}

}  // namespace

Hardware changed(const Hardware& hardware, const HardwareChanges& changes) {
  Hardware result = hardware;
  change(result.memory_gb_per_s, changes.memory_rate, "--hbm", false);
  change(result.nvlink_gb_per_s, changes.nvlink, "--nvlink", false);
  change(result.nic_gb_per_s, changes.nic, "--nic", true);
  if (!changes.peak.empty()) {
    Figure& fp8 = result.fp8_dense_tflops ? *result.fp8_dense_tflops : result.bf16_dense_tflops;
    const double before = fp8.value;
    change(fp8, changes.peak, "--peak", false);
    if (result.fp8_dense_tflops) {
      result.bf16_dense_tflops.value *= fp8.value / before;
    }
  }
  if (changes.nvlink_domain) {
    constexpr int64_t kMostGpus = 1 << 16;
    if (*changes.nvlink_domain < 1 || *changes.nvlink_domain > kMostGpus) {
      model::throw_input_error("--nvlink-domain {}: expected 1 to {} GPUs", *changes.nvlink_domain, kMostGpus);
    }
    result.nvlink_domain_gpus = {.value = static_cast<double>(*changes.nvlink_domain),
                                 .source = fmt::format("--nvlink-domain {}", *changes.nvlink_domain)};
  }
  const int64_t comm_sms = changes.comm_sms.value_or(0);
  if (changes.sms < 1 || comm_sms < 0 || comm_sms >= changes.sms) {
    model::throw_input_error(
        "--comm-sms {}: expected 0 up to {}, of the {} SMs of --sms", comm_sms, changes.sms - 1, changes.sms);
  }
  const double left = static_cast<double>(changes.sms - comm_sms) / static_cast<double>(changes.sms);
  result.bf16_dense_tflops.value *= left;
  if (result.fp8_dense_tflops) {
    result.fp8_dense_tflops->value *= left;
  }
  return result;
}

std::vector<ChosenFit> changed(std::vector<ChosenFit> fits, const Hardware& hardware, const HardwareChanges& changes) {
  if (!changes.wide_fp8_accumulation) {
    return fits;
  }
  if (std::ranges::any_of(fits, [](const ChosenFit& fit) { return fit.table != nullptr; })) {
    model::throw_input_error(
        "--fp8-accumulation 34bit: rows of --timing-tables do not tell the promotion apart; without them it would "
        "work");
  }
  const auto math = [&](OpFamily family) { return fits[static_cast<size_t>(family)].fit.constants[2]; };
  const double bf16_frac = math(OpFamily::kGemmBf16);
  const double fp8_frac = math(OpFamily::kGemmFp8);
  const bool promotes = hardware.generation == Generation::kHopper;
  const double faster = promotes ? std::max(1.0, bf16_frac / fp8_frac) : 1;
  for (ChosenFit& fit : fits) {
    if (const std::optional<size_t> constant = fp8_math_constant(fit.fit.family)) {
      fit.fit.constants[*constant] = std::min(1.0, fit.fit.constants[*constant] * faster);
      fit.what_if =
          promotes ? fmt::format(
                         "FP8 accumulation in 34 bits, an upper bound: FP8 products {:.2f} times as fast, "
                         "to the {:.0f} % of their peak that BF16 ones reach, which nothing promotes",
                         faster,
                         100 * fp8_frac * faster)
                   : fmt::format("FP8 accumulation in 34 bits: {} promotes nothing, so nothing changes", hardware.name);
    }
  }
  return fits;
}

}  // namespace simulator
