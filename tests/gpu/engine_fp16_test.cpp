// The engine in profile fp16 on the emulated device: every op of its steps held against the reference, with room for the residual stream.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/engine/dequantised_source.hpp"
#include "tests/gpu/engine_verdict.hpp"
#include "tests/reference/small_model.hpp"
#include "tools/common.hpp"

namespace tools {
namespace {

const ModeFlags kFp16{.profile = "fp16"};

golden::Dump dump_fp16(const model::WeightSource& weights,
                       const golden::GoldenFile& golden,
                       const EngineDumpJob& job = {},
                       bool has_wgmma = true) {
  return dump_engine(weights, golden.manifest, gpu::make_emulated_fp16_backend({.num_os_threads = 2}, has_wgmma), job);
}

class EngineFp16Fixture : public testing::TestWithParam<const char*> {};

TEST_P(EngineFp16Fixture, PassesOpByOp) {
  const auto checkpoint = open_checkpoint(std::string("synthetic:") + GetParam());
  const auto golden =
      record(*checkpoint.weights, job_of_prompt({3, 1, 4, 15, 92}, 1, checkpoint.weights->config(), kFp16));
  expect_pass(verify(*checkpoint.weights, golden, dump_fp16(*checkpoint.weights, golden)));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EngineFp16Fixture, testing::Values("nano", "edge"));

TEST(EngineFp16, MiniPassesOpByOp_PromptsDecodingBatchAndMtp) {
  const auto golden = mini().record(kFp16, {"p1", "p7", "d0", "b2"}, [] {
    RecordJob job;
    job.with_mtp = true;
    return job;
  }());
  const auto dump = dump_fp16(mini().checkpoint(), golden, {.cases = {"p1", "p7", "d0", "b2"}});
  for (const auto& [name, tensor] : dump.tensors) {
    EXPECT_NE(tensor.dtype, model::DType::kBF16) << name;
  }
  const auto verdict = verify(mini().checkpoint(), golden, dump, {"p1", "p7", "d0", "b2"});
  expect_pass(verdict);
  EXPECT_GT(verdict.ops.size(), 400U);
}

TEST(EngineFp16, WithoutWgmma_PassesOpByOp) {
  const auto checkpoint = open_checkpoint("synthetic:nano");
  const auto golden =
      record(*checkpoint.weights, job_of_prompt({3, 1, 4, 15, 92}, 1, checkpoint.weights->config(), kFp16));
  expect_pass(verify(*checkpoint.weights, golden, dump_fp16(*checkpoint.weights, golden, {}, false)));
}

TEST(EngineFp16, Fp8Cache_IsANamedVariant_AndPasses) {
  const auto golden = mini().record(kFp16, {"p7", "d0"});
  const auto dump = dump_fp16(mini().checkpoint(), golden, {.cases = {"p7", "d0"}, .fp8_cache = true});
  const auto verdict = verify(mini().checkpoint(), golden, dump, {"p7", "d0"});
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
  EXPECT_TRUE(std::ranges::any_of(verdict.ops, [](const auto& op) { return op.variant == "cache-fp8"; }));
}

// FP8 weights where the linears are not FP8: what a device without it computes.
TEST(EngineFp16, DequantisedWeights_PassOpByOp_AsBf16Does) {
  const auto checkpoint = open_checkpoint("synthetic:nano");
  const auto& config = checkpoint.weights->config();
  const auto golden_of = [&](const ModeFlags& mode) {
    return record(*checkpoint.weights, job_of_prompt({3, 1, 4, 15, 92}, 1, config, mode));
  };
  const auto in_fp16 = golden_of({.profile = "fp16", .gemm = "fp16"});
  const gpu::DequantisedSource weights(*checkpoint.weights, model::DType::kF16);
  expect_pass(verify(*checkpoint.weights, in_fp16, dump_fp16(weights, in_fp16)));
  const auto in_bf16 = golden_of({.gemm = "bf16"});
  const gpu::DequantisedSource bf16_weights(*checkpoint.weights, model::DType::kBF16);
  expect_pass(
      verify(*checkpoint.weights,
             in_bf16,
             dump_engine(bf16_weights, in_bf16.manifest, gpu::make_emulated_backend({.num_os_threads = 2}), {})));
}

// A small model without FP8 whose first layer's attention writes numbers into the stream that are beyond FP16's 65,504, and less than 2.5
// times that.
reference::HandMadeWeights with_large_stream(int64_t num_dense_layers) {
  auto config = reference::small_config();
  config.num_hidden_layers = 3;
  config.first_k_dense_replace = num_dense_layers;
  config.quantization.reset();
  auto weights = reference::random_weights(config, 11);
  const std::string name = "model.layers.0.self_attn.o_proj.weight";
  const auto exact = record(weights, job_of_prompt({3, 1, 4, 15, 9}, 0, config, {.mode = "exact"}));
  double largest = 0;
  for (const double value : model::to_double(exact.tensors.at("p5/layer.0.attn.o_proj"))) {
    largest = std::max(largest, std::abs(value));
  }
  std::vector<float> larger;
  for (const double value : model::to_double(weights.weight(name))) {
    larger.push_back(reference::round_to_bf16(static_cast<float>(value * 100000 / largest)));
  }
  weights.set(name, reference::bf16(weights.weight(name).shape, larger));
  return weights;
}

bool all_finite(const model::TensorView& tensor) {
  return std::ranges::all_of(model::to_double(tensor), [](double value) { return std::isfinite(value); });
}

// vllm#13232, and vllm#14809: a fix that was right for one dense layer alone.
TEST(EngineFp16, StreamBeyondFp16_OverflowsUnscaled_AndPassesScaled_ForAnyNumberOfDenseLayers) {
  for (const int64_t num_dense_layers : {0, 1, 3}) {
    SCOPED_TRACE(num_dense_layers);
    const auto weights = with_large_stream(num_dense_layers);
    const auto golden = record(weights, job_of_prompt({3, 1, 4, 15, 9}, 1, weights.config(), kFp16));
    const auto scaled = dump_fp16(weights, golden);
    for (const auto& [name, tensor] : scaled.tensors) {
      EXPECT_TRUE(all_finite(tensor)) << name;
    }
    expect_pass(verify(weights, golden, scaled));
    const auto unscaled =
        dump_fp16(weights, golden, {.change = [](int, gpu::EngineOptions& options) { options.scaled_stream = false; }});
    EXPECT_FALSE(all_finite(unscaled.tensors.at("p5/layer.0.attn_residual")));
    EXPECT_FALSE(all_finite(unscaled.tensors.at("p5/logits")));
  }
}

}  // namespace
}  // namespace tools
