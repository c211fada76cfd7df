// Checkpoints that other people's code wrote and ran: each must open with the shapes its README lists.
#include <gtest/gtest.h>

#include "model/checkpoint.hpp"
#include "tests/shared_data.hpp"

namespace model {
namespace {

TEST(OracleCheckpoint, Nano_IsFp8) {
  const auto directory = shared_data("oracle/nano/checkpoint");
  SKIP_UNLESS_THERE(directory);
  const Checkpoint checkpoint(*directory);
  EXPECT_TRUE(checkpoint.config().quantization.has_value());
  EXPECT_EQ(checkpoint.weight("model.layers.0.mlp.gate_proj.weight_scale_inv").shape, (Shape{4, 2}));
  EXPECT_EQ(checkpoint.weight("model.layers.4.eh_proj.weight").shape, (Shape{256, 512}));
}

TEST(OracleCheckpoint, Ragged_HasCutBlocks) {
  const auto directory = shared_data("oracle/ragged/checkpoint");
  SKIP_UNLESS_THERE(directory);
  const Checkpoint checkpoint(*directory);
  EXPECT_EQ(checkpoint.weight("model.layers.0.self_attn.kv_a_proj_with_mqa.weight").shape, (Shape{200, 320}));
  EXPECT_EQ(checkpoint.weight("model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv").shape, (Shape{2, 3}));
}

TEST(OracleCheckpoint, NotV3_IsBf16WithoutQueryLora) {
  const auto directory = shared_data("oracle/notv3/checkpoint");
  SKIP_UNLESS_THERE(directory);
  const Checkpoint checkpoint(*directory);
  EXPECT_FALSE(checkpoint.config().quantization.has_value());
  EXPECT_EQ(checkpoint.weight("model.layers.0.self_attn.q_proj.weight").dtype, DType::kBF16);
  EXPECT_EQ(checkpoint.weight("model.layers.4.eh_proj.weight").shape, (Shape{256, 512}));
}

}  // namespace
}  // namespace model
