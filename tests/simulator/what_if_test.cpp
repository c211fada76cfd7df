#include "simulator/what_if.hpp"

#include <gtest/gtest.h>

#include <map>

#include "model/check.hpp"

namespace simulator {
namespace {

TEST(HardwareChanges, FactorsAndUnits) {
  const Hardware base = load_hardware("h100");
  const Hardware other = changed(base, {.memory_rate = "x1.4", .nvlink = "900", .nic = "800G"});
  EXPECT_DOUBLE_EQ(other.memory_gb_per_s.value, 1.4 * base.memory_gb_per_s.value);
  EXPECT_DOUBLE_EQ(other.nvlink_gb_per_s.value, 900);
  EXPECT_DOUBLE_EQ(other.nic_gb_per_s.value, 100);  // 800 Gb/s
  EXPECT_DOUBLE_EQ(other.bf16_dense_tflops.value, base.bf16_dense_tflops.value);
}

// 20 of 132 SMs: 112/132 of the peak is left.
TEST(HardwareChanges, SmsForCommunication_DoNotCompute) {
  const Hardware base = load_hardware("h100");
  const Hardware other = changed(base, {.comm_sms = 20});
  EXPECT_DOUBLE_EQ(other.bf16_dense_tflops.value, base.bf16_dense_tflops.value * 112 / 132);
  EXPECT_DOUBLE_EQ(other.fp8_dense_tflops->value, base.fp8_dense_tflops->value * 112 / 132);
}

TEST(HardwareChanges, NonsenseIsRefused) {
  const Hardware base = load_hardware("h100");
  for (const char* text : {"fast", "x", "x-2", "-5", "0", "x2G", "1e99", "nan"}) {
    EXPECT_THROW(changed(base, {.nic = text}), model::InputError) << text;
  }
  EXPECT_THROW(changed(base, {.nvlink = "400G"}), model::InputError);
  EXPECT_THROW(changed(base, {.comm_sms = 132}), model::InputError);
}

// A what-if is no other chip: the constants of a Hopper stay those of a Hopper.
TEST(HardwareChanges, AGeneration_OutlivesOtherRates) {
  const Hardware faster = changed(load_hardware("h200"), {.nvlink = "x4"});
  EXPECT_EQ(faster.generation, Generation::kHopper);
  EXPECT_FALSE(is_measured_on(load_engine("sglang"), faster));
  EXPECT_EQ(load_hardware("gb200-nvl72").generation, Generation::kBlackwell);
  EXPECT_EQ(load_hardware("a100").generation, Generation::kBeforeFp8);
}

// The bound: FP8 products reach the share of their peak that BF16 ones reach. On Blackwell nothing is promoted.
TEST(HardwareChanges, WideFp8Accumulation_FreesProductsOnHopperAlone) {
  const auto math = [](const std::vector<ChosenFit>& fits, OpFamily family) {
    return fits[static_cast<size_t>(family)].fit.constants[2];
  };
  const HardwareChanges wide{.wide_fp8_accumulation = true};
  const Hardware hopper = load_hardware("h100");
  const auto before = choose_fits(built_in_calibrations(), hopper);
  const auto after = changed(before, hopper, wide);
  EXPECT_NEAR(math(after, OpFamily::kGemmFp8), math(before, OpFamily::kGemmBf16), 1e-12);
  EXPECT_GT(math(after, OpFamily::kExperts), math(before, OpFamily::kExperts));
  EXPECT_EQ(math(after, OpFamily::kGemmBf16), math(before, OpFamily::kGemmBf16));
  EXPECT_NE(after[0].what_if.find("upper bound"), std::string::npos);
  const Hardware blackwell = load_hardware("b200");
  const auto others = choose_fits(built_in_calibrations(), blackwell);
  EXPECT_EQ(math(changed(others, blackwell, wide), OpFamily::kGemmFp8), math(others, OpFamily::kGemmFp8));
}

TEST(WhatIfs, EachChangesWhatItNames) {
  const Deployment deployment = build_deployment({.preset = "h100-ep72-decode"});
  const auto fits = choose_fits(built_in_calibrations(), deployment.hardware);
  MoeCurves curves;
  const Table table = what_if_table({.as_built = deployment, .fits = fits, .changes = {.comm_sms = 20}}, curves);
  std::map<std::string, double> tpot_ms;
  for (const auto& row : table.rows) {
    tpot_ms[std::get<std::string>(row[1])] = std::get<double>(row[2]);
  }
  const double now = tpot_ms.at("");
  EXPECT_LT(tpot_ms.at("--nic 800G"), now);
  EXPECT_LT(tpot_ms.at("--nvlink-domain 72"), now);
  for (const char* flag : {"--hbm x1.4", "--nvlink x2", "--comm-sms 0", "--fp8-accumulation 34bit"}) {
    EXPECT_LE(tpot_ms.at(flag), now) << flag;
  }
  EXPECT_EQ(tpot_ms.at("--comm-sms 20"), now);
  EXPECT_FALSE(tpot_ms.contains("--eplb"));  // it is on
}

// Signs that physics fixes; the host time of a step goes into each token as it is. One batch: with two, the exchange of this preset
// hides all computation.
TEST(Sensitivity, HasTheSignsOfPhysics) {
  Deployment deployment = build_deployment({.preset = "h100-ep72-decode"});
  deployment.decode.rank.two_batch_overlap = false;
  const auto fits = choose_fits(built_in_calibrations(), deployment.hardware);
  MoeCurves curves;
  const Table table = sensitivity_table(deployment, fits, curves);
  std::map<std::string, double> slopes;
  for (const auto& row : table.rows) {
    slopes[std::get<std::string>(row[0])] = std::get<double>(row[3]);
  }
  EXPECT_LT(slopes.at("memory rate"), 0);
  EXPECT_LE(slopes.at("network of a GPU"), 0);
  EXPECT_GT(slopes.at("requests in the system"), 0);
  EXPECT_GT(slopes.at("prompt"), 0);
  EXPECT_NEAR(slopes.at("host time of a step"), 1e-3, 1e-9);
}

}  // namespace
}  // namespace simulator
