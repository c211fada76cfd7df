// Linears of DeepSeek-V3's and mini's shapes on random weights.
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "model/check.hpp"
#include "reference/op_call.hpp"
#include "reference/parallel.hpp"
#include "reference/simd/kernels.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/reference_bench.hpp"
#include "tools/bench/timing.hpp"
#include "tools/mode_flags.hpp"

namespace tools {
namespace {

struct LinearShape {
  const char* model;
  const char* op;
  int64_t out_dim;
  int64_t in_dim;
};

constexpr std::array kShapes{LinearShape{"v3", "attn.q_a", 1536, 7168},
                             LinearShape{"v3", "attn.q_b", 24576, 1536},
                             LinearShape{"v3", "attn.kv_a", 576, 7168},
                             LinearShape{"v3", "attn.o_proj", 7168, 16384},
                             LinearShape{"v3", "mlp.gate", 18432, 7168},
                             LinearShape{"v3", "moe.expert.gate", 2048, 7168},
                             LinearShape{"v3", "moe.expert.down", 7168, 2048},
                             LinearShape{"mini", "attn.q_b", 384, 128},
                             LinearShape{"mini", "attn.o_proj", 256, 256},
                             LinearShape{"mini", "moe.expert.gate", 128, 256},
                             LinearShape{"mini", "moe.expert.down", 256, 128}};
constexpr std::array<int64_t, 4> kNumTokens{1, 4, 32, 128};

// Weights that are somewhere else in a large buffer each time they are asked for; mini's stay where they are, since they fit a
// cache in use as well.
class RotatingWeights : public model::WeightSource {
 public:
  RotatingWeights(const LinearShape& shape, bool is_fp8, std::span<const std::byte> pool)
      : shape_(shape), is_fp8_(is_fp8), pool_(pool) {
    const int64_t rows = (shape.out_dim + 127) / 128;
    const int64_t columns = (shape.in_dim + 127) / 128;
    scales_ = model::make_tensor(
        model::DType::kF32, {rows, columns}, std::vector<float>(static_cast<size_t>(rows * columns), 0x1.8p-9f));
  }

  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    if (name != "w") {
      return scales_;
    }
    const auto bytes = static_cast<size_t>(weight_bytes());
    if (first_ + bytes > pool_.size()) {
      first_ = 0;
    }
    const auto codes = pool_.subspan(first_, bytes);
    if (std::string_view(shape_.model) != "mini") {
      first_ += (bytes + 4095) / 4096 * 4096;
    }
    return {is_fp8_ ? model::DType::kF8E4M3 : model::DType::kBF16, {shape_.out_dim, shape_.in_dim}, codes, nullptr};
  }
  [[nodiscard]] int64_t weight_bytes() const { return shape_.out_dim * shape_.in_dim * (is_fp8_ ? 1 : 2); }

 private:
  LinearShape shape_;
  bool is_fp8_;
  std::span<const std::byte> pool_;
  model::ModelConfig config_;
  model::TensorView scales_;
  mutable size_t first_ = 0;
};

// Random numbers near 1 in size in either format: the lower byte of a BF16 number is free, the upper one 0x3F or 0xBF; of E4M3
// every byte but NaN is a number.
std::vector<std::byte> random_codes(int64_t count, bool is_fp8) {
  std::vector<std::byte> codes(static_cast<size_t>(count));
  std::mt19937 random(1);
  for (size_t i = 0; i < codes.size(); i += 2) {
    const auto bits = static_cast<uint32_t>(random());
    codes[i] = static_cast<std::byte>(is_fp8 && (bits & 0x7F) == 0x7F ? 0 : bits);
    codes[i + 1] = static_cast<std::byte>(is_fp8 ? (bits >> 8) & 0xBF : 0x3F | ((bits >> 8) & 0x80));
  }
  return codes;
}

int64_t buffer_bytes() {
  constexpr int64_t kLargestWeightBytes = int64_t{18432} * 7168 * 2;
  return std::max(4 * last_level_cache_bytes(), kLargestWeightBytes) / 4096 * 4096;
}

}  // namespace

MachineLimits measure_limits(const BenchFlags& flags) {
  const auto level = reference::simd::kernels().level;
  const std::vector<std::byte> buffer(static_cast<size_t>(buffer_bytes()), std::byte{1});
  constexpr int64_t kNumRounds = 200'000;
  constexpr int64_t kRangeBytes = 1 << 20;
  const auto num_ranges = static_cast<int64_t>(buffer.size()) / kRangeBytes;
  volatile float number = 0;
  volatile uint64_t word = 0;
  // Short and often, so that on a machine that others use too some run has a core to itself.
  constexpr double kShort_s = 0.003;
  constexpr int kOften = 40;
  const auto fma = [&](int64_t) { number = multiply_add_loop(level, kNumRounds); };
  const auto load = [&](int64_t) { number = load_loop(level, kNumRounds); };
  const auto operation = [&](int64_t) { word = vector_operation_loop(level, kNumRounds); };
  const auto on_all = [&](const auto& loop) {
    return [&] { reference::parallel_for(flags.num_threads, flags.num_threads, loop); };
  };
  const auto seconds = best_seconds(
      {{"fma", on_all(fma)}, {"load", on_all(load)}, {"operation", on_all(operation)}, {"fma of one", [&] { fma(0); }}},
      clock_of(flags.num_threads),
      kShort_s,
      kOften * flags.num_repetitions);
  const auto read_seconds =
      best_seconds({{"read",
                     [&] {
                       reference::parallel_for(num_ranges, flags.num_threads, [&](int64_t r) {
                         word = read_all(std::span(buffer).subspan(static_cast<size_t>(r * kRangeBytes), kRangeBytes));
                       });
                     }}},
                   clock_of(flags.num_threads),
                   flags.min_time_s,
                   2 * flags.num_repetitions);
  const double macs = static_cast<double>(kNumRounds * num_macs_of_round(level) * flags.num_threads);
  const auto loads = static_cast<double>(kNumRounds * kNumLoadsOfRound * flags.num_threads);
  const auto operations = static_cast<double>(kNumRounds * kNumOperationsOfRound * flags.num_threads);
  return {.fma_gmac_per_s = macs / seconds[0] * 1e-9,
          .cached_gload_per_s = loads / seconds[1] * 1e-9,
          .goperation_per_s = operations / seconds[2] * 1e-9,
          .read_gb_per_s = static_cast<double>(num_ranges * kRangeBytes) / read_seconds[0] * 1e-9,
          .buffer_bytes = static_cast<int64_t>(buffer.size()),
          .fma_gain = flags.num_threads * seconds[3] / seconds[0]};
}

std::vector<LinearRow> measure_linears(const BenchFlags& flags, const MachineLimits& limits) {
  const auto rules = rules_of(resolved({.mode = flags.mode, .gemm = "fp8"}, model::built_in_config("deepseek-v3")));
  const model::Op op{.id = "linear", .kind = model::OpKind::kLinear, .weights = {"w"}};
  const model::Workload workload;
  std::vector<LinearRow> rows;
  for (const bool is_fp8 : {true, false}) {
    const auto pool = random_codes(limits.buffer_bytes, is_fp8);
    for (const LinearShape& shape : kShapes) {
      const std::string name = fmt::format("{} {} {}", shape.model, shape.op, is_fp8 ? "fp8" : "bf16");
      if (name.find(flags.filter) == std::string::npos) {
        continue;
      }
      const RotatingWeights weights(shape, is_fp8, pool);
      std::vector<Timed> timed;
      std::vector<Timed> of_one;  // thread
      for (const int64_t tokens : kNumTokens) {
        std::vector<uint16_t> codes(static_cast<size_t>(tokens * shape.in_dim));
        for (size_t i = 0; i < codes.size(); ++i) {
          // Both signs, in no pattern that a branch could learn.
          const auto sign = static_cast<uint16_t>(i * 0x9E3779B97F4A7C15 >> 63 << 15);
          codes[i] = static_cast<uint16_t>(0x3F00 + i * 37 % 512) | sign;
        }
        const auto x = model::make_tensor(model::DType::kBF16, {tokens, shape.in_dim}, std::move(codes));
        const auto run_on = [&, x](int num_threads) {
          return [&, x, num_threads] {
            (void)reference::run_op({.rules = rules,
                                     .workload = workload,
                                     .weights = weights,
                                     .op = op,
                                     .inputs = {x},
                                     .num_threads = num_threads});
          };
        };
        timed.push_back({fmt::format("{} {}", name, tokens), run_on(flags.num_threads)});
        if (flags.num_threads > 1) {
          of_one.push_back({fmt::format("{} {} of one", name, tokens), run_on(1)});
        }
      }
      auto seconds = repeated_seconds(timed, clock_of(flags.num_threads), flags.min_time_s, flags.num_repetitions);
      const auto one_s = of_one.empty() ? std::vector<double>()
                                        : best_seconds(of_one, Clock::kWall, flags.min_time_s, flags.num_repetitions);
      for (size_t i = 0; i < seconds.size(); ++i) {
        const auto macs = static_cast<double>(kNumTokens[i] * shape.out_dim * shape.in_dim);
        const double gain = one_s.empty() ? 1 : one_s[i] / seconds[i].front();
        rows.push_back({.model = shape.model,
                        .op = shape.op,
                        .format = is_fp8 ? "fp8" : "bf16",
                        .out_dim = shape.out_dim,
                        .in_dim = shape.in_dim,
                        .num_tokens = kNumTokens[i],
                        .gmac_per_s = macs / seconds[i].front() * 1e-9,
                        .weight_gb_per_s = static_cast<double>(weights.weight_bytes()) / seconds[i].front() * 1e-9,
                        .port_count = port_count(rules, is_fp8, kNumTokens[i], reference::simd::kernels().level),
                        .seconds = std::move(seconds[i]),
                        .gain = gain});
      }
    }
  }
  return rows;
}

}  // namespace tools
