#include "reference/ops/embed.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

HandMadeOp embed_op() {
  HandMadeOp embed;
  embed.op.kind = model::OpKind::kEmbed;
  embed.op.id = "embed";
  embed.config().vocab_size = 3;
  embed.config().hidden_size = 2;
  embed.set_weight(bf16({3, 2}, {1, 2, 3, 4, 5, 6}));
  return embed;
}

TEST(Embed, EachToken_GetsItsRow) {
  const auto rows = embed_op().run({i32({4}, {2, 0, 2, 1})});
  EXPECT_EQ(rows.dtype, model::DType::kBF16);
  EXPECT_EQ(rows.shape, (model::Shape{4, 2}));
  EXPECT_EQ(numbers(rows), (Numbers{5, 6, 1, 2, 5, 6, 3, 4}));
}

TEST(Embed, ExactMode_KeepsFp64) {
  auto embed = embed_op();
  embed.rules = exact_rules();
  const auto rows = embed.run({i32({1}, {1})});
  EXPECT_EQ(rows.dtype, model::DType::kF64);
  EXPECT_EQ(numbers(rows), (Numbers{3, 4}));
}

TEST(Embed, IdOutsideTheVocabulary_IsAnInputError) {
  for (const int32_t token : {-1, 3}) {
    try {
      (void)embed_op().run({i32({2}, {0, token})});
      ADD_FAILURE() << token;
    } catch (const model::InputError& error) {
      EXPECT_NE(std::string(error.what()).find("token id " + std::to_string(token)), std::string::npos) << error.what();
    }
  }
}

TEST(Embed, MissingTable_IsAnInputError) {
  auto embed = embed_op();
  embed.op.weights = {"other"};
  EXPECT_THROW((void)embed.run({i32({1}, {0})}), model::InputError);
}

}  // namespace
}  // namespace reference
