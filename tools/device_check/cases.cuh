// The launches of the device check, written once and compiled for the emulation and for the device. Inputs are a pure function of the
// case; shapes are those of DeepSeek-V3, with few tokens and N of the linears cut.
// `Machine` has: Stream stream(); void* upload(const void*, int64_t num_bytes); void* allocate(int64_t num_bytes); and
// std::vector<std::byte> download(const void*, int64_t num_bytes), which waits for the stream.
#pragma once

#include <random>

#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/cache_latent.cuh"
#include "gpu/kernels/expanded_attention.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/fp8_linear_sm90.cuh"
#include "gpu/kernels/latent_attention.cuh"
#include "gpu/kernels/rms_norm.cuh"
#include "gpu/kernels/router.cuh"
#include "gpu/kernels/swiglu.cuh"
#include "tools/device_check/case_result.hpp"
#include "tools/device_check/probes.cuh"

namespace gpu::DSV3_BACKEND {

template <typename Machine>
class DeviceCases {
 public:
  explicit DeviceCases(Machine& machine) : machine_(machine) {}

  std::vector<tools::CaseResult> run() {
    probe_case(false);
    probe_case(true);
    fp8_linear_case();
    fp8_linear_sm90_case();
    bf16_linear_case();
    rms_norm_case();
    swiglu_case();
    router_case();
    latent_case(false);
    latent_case(true);
    expanded_case();
    return std::move(results_);
  }

 private:
  template <typename T>
  T* given(const std::vector<T>& values) {
    return static_cast<T*>(machine_.upload(values.data(), static_cast<int64_t>(values.size() * sizeof(T))));
  }
  template <typename T>
  T* room(int64_t count) {
    return static_cast<T*>(machine_.allocate(count * static_cast<int64_t>(sizeof(T))));
  }
  template <typename T>
  void keep(const char* name, bool is_exact, const T* from, int64_t count) {
    const auto num_bytes = count * static_cast<int64_t>(sizeof(T));
    results_.push_back({name, is_exact, sizeof(T), machine_.download(from, num_bytes)});
  }

  // Uniform in [-2, 2), cut to BF16.
  half16* numbers(int64_t count) {
    std::vector<half16> values;
    for (int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(static_cast<int32_t>(random_())) * 0x1p-30f;
      uint32_t bits = 0;
      memcpy(&bits, &value, sizeof(bits));
      values.push_back({static_cast<uint16_t>(bits >> 16)});
    }
    return given(values);
  }
  fp8_e4m3* codes(int64_t count) {
    std::vector<fp8_e4m3> values;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = random_();
      values.push_back({static_cast<uint8_t>((bits & 0x80U) | (bits >> 8) % 0x7F)});
    }
    return given(values);
  }
  float* scales(int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(1e-3f + static_cast<float>(random_() >> 8) * 0x1p-34f);
    }
    return given(values);
  }

  // A word of operands for the tensor core: two BF16 numbers between 2^-12 and 2^12, or four E4M3 numbers.
  uint32_t operand_word(bool in_e4m3) {
    const uint32_t bits = random_();
    uint32_t word = 0;
    if (in_e4m3) {
      for (int i = 0; i < 32; i += 8) {
        word |= ((bits >> i & 0x80U) | (bits >> i & 0x7FU) % 0x7FU) << i;
      }
      return word;
    }
    for (int i = 0; i < 32; i += 16) {
      const uint32_t exponent = 127 - 12 + (bits >> i & 0xFFU) % 25;
      word |= ((bits >> i & 0x8000U) | exponent << 7 | (bits >> i & 0x7F00U) >> 8) << i;
    }
    return word;
  }
  void probe_case(bool in_e4m3) {
    constexpr int64_t kProbes = 256;
    std::vector<FragmentA> a(kProbes * kLanes);
    std::vector<FragmentB> b(a.size());
    std::vector<FragmentC> c(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      for (uint32_t& word : a[i].at) {
        word = operand_word(in_e4m3);
      }
      for (uint32_t& word : b[i].at) {
        word = operand_word(in_e4m3);
      }
      for (float& sum : c[i].at) {
        sum = static_cast<float>(static_cast<int32_t>(random_())) * 0x1p-8f;
      }
    }
    auto* const d = room<FragmentC>(kProbes * kLanes);
    probe(machine_.stream(), kProbes, {.a = given(a), .b = given(b), .c = given(c), .d = d, .in_e4m3 = in_e4m3});
    keep(in_e4m3 ? "mma_e4m3" : "mma_bf16", true, reinterpret_cast<const float*>(d), 4 * kProbes * kLanes);
  }

  void fp8_linear_case() {
    constexpr int64_t kTokens = 5;
    constexpr int64_t kOut = 128;
    constexpr int64_t kIn = 7168;
    auto* const y = room<half16>(kTokens * kOut);
    fp8_linear(machine_.stream(),
               {.x = codes(kTokens * kIn),
                .x_scale = scales(kIn / 128 * kTokens),
                .weight = codes(kOut * kIn),
                .weight_scale = scales(kIn / 128),
                .y = y,
                .partial_sums = room<float>(4 * kTokens * kOut),
                .arrivals = given(std::vector<int32_t>(static_cast<size_t>(linear_num_tiles(kTokens, kOut)), 0)),
                .num_tokens = kTokens,
                .x_scale_stride = kTokens,
                .out_dim = kOut,
                .in_dim = kIn,
                .num_splits = 4});
    keep("fp8_linear", true, y, kTokens * kOut);
  }
  void fp8_linear_sm90_case() {
    constexpr int64_t kTokens = 70;
    constexpr int64_t kOut = 128;
    constexpr int64_t kIn = 1536;
    auto* const y = room<half16>(kTokens * kOut);
    fp8_linear_sm90(machine_.stream(),
                    {.x = codes(kTokens * kIn),
                     .x_scale = scales(kIn / 128 * kTokens),
                     .weight = codes(kOut * kIn),
                     .weight_scale = scales(kIn / 128),
                     .y = y,
                     .num_tokens = kTokens,
                     .x_scale_stride = kTokens,
                     .out_dim = kOut,
                     .in_dim = kIn});
    keep("fp8_linear_sm90", true, y, kTokens * kOut);
  }
  void bf16_linear_case() {
    constexpr int64_t kTokens = 3;
    constexpr int64_t kOut = 256;
    constexpr int64_t kIn = 7168;
    auto* const y = room<float>(kTokens * kOut);
    bf16_linear(machine_.stream(),
                {.x = numbers(kTokens * kIn),
                 .weight = numbers(kOut * kIn),
                 .y_f32 = y,
                 .num_tokens = kTokens,
                 .x_stride = kIn,
                 .y_stride = kOut,
                 .out_dim = kOut,
                 .in_dim = kIn});
    keep("bf16_linear", true, y, kTokens * kOut);
  }
  void rms_norm_case() {
    constexpr int64_t kTokens = 3;
    constexpr int kHidden = 7168;
    auto* const normed = room<half16>(kTokens * kHidden);
    auto* const x_scale = room<float>(kHidden / 128 * kTokens);
    rms_norm(machine_.stream(),
             {.x = numbers(kTokens * kHidden),
              .residual = numbers(kTokens * kHidden),
              .gain = numbers(kHidden),
              .residual_out = room<half16>(kTokens * kHidden),
              .normed = normed,
              .codes = room<fp8_e4m3>(kTokens * kHidden),
              .scales = x_scale,
              .num_tokens = kTokens,
              .x_stride = kHidden,
              .scale_stride = kTokens,
              .hidden = kHidden,
              .epsilon = 1e-6f});
    keep("rms_norm", true, normed, kTokens * kHidden);
    keep("rms_norm.scales", true, x_scale, kHidden / 128 * kTokens);
  }
  void swiglu_case() {
    constexpr int64_t kRows = 3;
    constexpr int kDim = 2048;
    auto* const act = room<half16>(kRows * kDim);
    swiglu(machine_.stream(), {.gate_up = numbers(kRows * 2 * kDim), .act = act, .max_rows = kRows, .dim = kDim});
    keep("swiglu", false, act, kRows * kDim);
  }
  void router_case() {
    constexpr int64_t kTokens = 4;
    constexpr int kExperts = 256;
    auto* const ids = room<int32_t>(kTokens * 8);
    router(machine_.stream(),
           {.logits = scales(kTokens * kExperts),
            .bias = scales(kExperts),
            .scores = room<float>(kTokens * kExperts),
            .topk_ids = ids,
            .topk_weights = room<float>(kTokens * 8),
            .num_tokens = kTokens,
            .num_experts = kExperts,
            .num_groups = 8,
            .kept_groups = 4,
            .k = 8});
    keep("router.topk_ids", true, ids, kTokens * 8);
  }
  // One sequence of 130 keys, written token by token, then read by its last two tokens.
  void latent_case(bool in_fp8) {
    constexpr int kKeys = 130;
    constexpr int kPages = 3;
    constexpr int kHeads = 16;
    constexpr int64_t kRows = 2 * kHeads;
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (int key = 0; key < kKeys; ++key) {
      positions.push_back(key);
      slots.push_back(key);
    }
    const int64_t row_bytes = in_fp8 ? fp8_cache_row_bytes(512, 64) : 576 * 2;
    auto* const cache = room<unsigned char>(kPages * kPageLen * row_bytes);
    cache_latent(machine_.stream(),
                 {.kv_a = numbers(kKeys * 576),
                  .gain = numbers(512),
                  .cos_sin = scales(kKeys * 64),
                  .positions = given(positions),
                  .slots = given(slots),
                  .cache = in_fp8 ? nullptr : reinterpret_cast<half16*>(cache),
                  .num_tokens = kKeys,
                  .kv_lora = 512,
                  .rope = 64,
                  .epsilon = 1e-6f,
                  .cache_fp8 = in_fp8 ? cache : nullptr});
    auto* const o_latent = room<half16>(kRows * 512);
    latent_attention(machine_.stream(),
                     {.q_latent = numbers(kRows * 512),
                      .q_rope = numbers(kRows * 64),
                      .cache = in_fp8 ? nullptr : reinterpret_cast<const half16*>(cache),
                      .block_table = given(std::vector<int32_t>{0, 1, 2}),
                      .num_keys = given(std::vector<int32_t>{kKeys}),
                      .first_token = given(std::vector<int32_t>{0, 2}),
                      .first_split = room<int32_t>(2),
                      .split_sequence = room<int32_t>(2),
                      .partial_o = room<float>(2 * kRows * 512),
                      .partial_stats = room<float>(2 * kRows * 2),
                      .o_latent = o_latent,
                      .num_sequences = 1,
                      .max_pages = kPages,
                      .max_splits = 2,
                      .max_new = 2,
                      .pages_per_split = 2,
                      .num_heads = kHeads,
                      .kv_lora = 512,
                      .rope = 64,
                      .scale = 0.05f,
                      .cache_fp8 = in_fp8 ? cache : nullptr});
    keep(in_fp8 ? "latent_attention.fp8" : "latent_attention", false, o_latent, kRows * 512);
  }
  void expanded_case() {
    constexpr int kLen = 130;
    constexpr int kHeads = 2;
    auto* const context = room<half16>(int64_t{kLen} * kHeads * 128);
    expanded_attention(machine_.stream(),
                       {.q = numbers(int64_t{kLen} * kHeads * 192),
                        .q_rope = numbers(int64_t{kLen} * kHeads * 64),
                        .kv = numbers(int64_t{kLen} * kHeads * 256),
                        .k_rope = numbers(int64_t{kLen} * 64),
                        .first_row = given(std::vector<int32_t>{0, kLen}),
                        .first_key = given(std::vector<int32_t>{0}),
                        .num_keys = given(std::vector<int32_t>{kLen}),
                        .first_token = given(std::vector<int32_t>{0, kLen}),
                        .context = context,
                        .num_sequences = 1,
                        .max_new = kLen,
                        .num_heads = kHeads,
                        .nope = 128,
                        .rope = 64,
                        .v = 128,
                        .scale = 0.05f});
    keep("expanded_attention", false, context, int64_t{kLen} * kHeads * 128);
  }

  Machine& machine_;
  std::mt19937 random_{1};
  std::vector<tools::CaseResult> results_;
};

}  // namespace gpu::DSV3_BACKEND
