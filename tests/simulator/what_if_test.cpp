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
