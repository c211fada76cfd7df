// The engine on the emulated device: every op of its steps held against the reference, in every order and checked for races; and the
// models that it refuses.
#include "gpu/engine/engine.hpp"

#include <gtest/gtest.h>

#include "tests/gpu/engine_verdict.hpp"
#include "tools/common.hpp"

namespace tools {
namespace {

using gpu::emulation::OrderKind;

TEST(Engine, MiniPassesOpByOp_PromptsDecodingBatchAndMtp) {
  const auto golden = mini().record({}, {"p1", "p7", "d0", "b2"}, [] {
    RecordJob job;
    job.with_mtp = true;
    return job;
  }());
  const auto dump = dump_engine(mini().checkpoint(),
                                golden.manifest,
                                gpu::make_emulated_backend({.num_os_threads = 2}),
                                {.cases = {"p1", "p7", "d0", "b2"}});
  const auto verdict = verify(mini().checkpoint(), golden, dump, {"p1", "p7", "d0", "b2"});
  expect_pass(verdict);
  EXPECT_GT(verdict.ops.size(), 400U);
}

// The rows that the cache keeps are codes and scales: another published rule, and the verifier says so.
TEST(Engine, Fp8Cache_IsANamedVariant_AndPasses) {
  const auto golden = mini().record({}, {"p7", "d0"});
  const auto dump = dump_engine(mini().checkpoint(),
                                golden.manifest,
                                gpu::make_emulated_backend({.num_os_threads = 2}),
                                {.cases = {"p7", "d0"}, .fp8_cache = true});
  const auto verdict = verify(mini().checkpoint(), golden, dump, {"p7", "d0"});
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
  int64_t num_caches = 0;
  for (const auto& op : verdict.ops) {
    if (op.op.starts_with("cache.")) {
      EXPECT_EQ(op.variant, "cache-fp8") << op.case_name << "/" << op.op;
      ++num_caches;
    }
  }
  EXPECT_EQ(num_caches, 6);
}

class EngineOrder : public testing::TestWithParam<gpu::emulation::Order> {};

TEST_P(EngineOrder, EveryOrderGivesTheSameBits_AndNoRace) {
  const auto checkpoint = open_checkpoint("synthetic:edge");
  const auto golden = record(*checkpoint.weights, job_of_prompt({5, 2, 77}, 1, checkpoint.weights->config()));
  const auto plain = dump_engine(*checkpoint.weights, golden.manifest, gpu::make_emulated_backend({}), {});
  const auto checked =
      dump_engine(*checkpoint.weights, golden.manifest, gpu::make_checked_backend({.order = GetParam()}), {});
  ASSERT_EQ(plain.tensors.size(), checked.tensors.size());
  for (const auto& [name, tensor] : plain.tensors) {
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, checked.tensors.at(name).bytes)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Orders,
                         EngineOrder,
                         testing::Values(gpu::emulation::Order{OrderKind::kForward, 0},
                                         gpu::emulation::Order{OrderKind::kReverse, 0},
                                         gpu::emulation::Order{OrderKind::kRandom, 7}));

class EngineFixture : public testing::TestWithParam<const char*> {};

TEST_P(EngineFixture, PassesOpByOp) {
  const auto checkpoint = open_checkpoint(std::string("synthetic:") + GetParam());
  const auto golden = record(*checkpoint.weights, job_of_prompt({3, 1, 4, 15, 92}, 1, checkpoint.weights->config()));
  const auto dump =
      dump_engine(*checkpoint.weights, golden.manifest, gpu::make_emulated_backend({.num_os_threads = 2}), {});
  expect_pass(verify(*checkpoint.weights, golden, dump));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EngineFixture, testing::Values("nano", "ragged", "notv3", "edge"));

// Other devices than a Hopper: all linears by the kernels that stream weights, experts gathering their tokens.
TEST(Engine, WithoutWgmma_PassesOpByOp) {
  const auto checkpoint = open_checkpoint("synthetic:nano");
  const auto golden = record(*checkpoint.weights, job_of_prompt({3, 1, 4, 15, 92}, 1, checkpoint.weights->config()));
  const auto dump =
      dump_engine(*checkpoint.weights, golden.manifest, gpu::make_emulated_backend({.num_os_threads = 2}, false), {});
  expect_pass(verify(*checkpoint.weights, golden, dump));
}

TEST(Engine, AnotherProfilesGolden_IsRefusedWithTheCommandThatRecordsOne) {
  const auto golden = mini().record({.profile = "hf"}, {"p2"});
  try {
    check_profile(golden.manifest);
    FAIL();
  } catch (const model::InputError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("profile hf with bf16 linears"), std::string::npos) << what;
    EXPECT_NE(what.find("dsv3-golden record"), std::string::npos) << what;
    EXPECT_NE(what.find("--profile v32"), std::string::npos) << what;
  }
}

// A width that no kernel is compiled for.
class OtherConfig : public model::WeightSource {
 public:
  OtherConfig(const model::WeightSource& original, const std::function<void(model::ModelConfig&)>& change)
      : original_(original), config_(original.config()) {
    change(config_);
  }
  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override { return original_.weight(name); }

 private:
  const model::WeightSource& original_;
  model::ModelConfig config_;
};

TEST(Engine, AModelThatTheKernelsCannotRun_IsRefusedByName) {
  const gpu::EngineOptions options{.limits = {.max_rows = 1, .max_sequences = 1, .max_len = 64, .max_head_rows = 1},
                                   .num_pages = 1};
  const auto refusal = [&](const std::function<void(model::ModelConfig&)>& change) -> std::string {
    try {
      const OtherConfig weights(mini().checkpoint(), change);
      const gpu::Engine engine(weights, gpu::make_emulated_backend({}), options);
    } catch (const model::InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal([](auto& config) { config.kv_lora_rank = 520; }).find("latent_attention"), std::string::npos);
  EXPECT_NE(refusal([](auto& config) { config.hidden_size = 8200; }).find("rms_norm"), std::string::npos);
  EXPECT_NE(refusal([](auto& config) { config.quantization->block_rows = 64; }).find("128 x 128"), std::string::npos);
}

TEST(Engine, TooLittleMemory_IsSaidBeforeAnythingIsAllocated) {
  const gpu::EngineOptions options{.limits = {.max_rows = 1, .max_sequences = 1, .max_len = 64, .max_head_rows = 1},
                                   .num_pages = 1};
  try {
    const gpu::Engine engine(mini().checkpoint(), gpu::make_emulated_backend({.memory_bytes = 1 << 20}), options);
    FAIL();
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("weights"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tools
