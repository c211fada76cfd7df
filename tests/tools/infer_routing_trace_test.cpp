// The routing trace against what a probe of the same run sees.
#include "tools/infer/routing_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "reference/generate/generator.hpp"
#include "tests/reference/small_model.hpp"

namespace tools {
namespace {

using reference::f32;
using reference::i32;

TEST(RoutingTrace, RowsNameRequestPositionPhaseLayerAndSlot) {
  RoutingTrace trace("abcd", {5, 1, 1});
  trace.enter_step({{.request = 0, .position = 4}, {.request = 2, .position = 0}});
  trace.see({.kind = model::OpKind::kRouterExperts, .layer = 3}, i32({2, 2}, {7, 1, 0, 5}));
  trace.see({.kind = model::OpKind::kRouterWeights, .layer = 3}, f32({2, 2}, {1.5, 1, 2.25, 0.25}));
  trace.enter_step({{.request = 0, .position = 5}});
  trace.see({.kind = model::OpKind::kRouterExperts, .layer = 4}, i32({1, 2}, {2, 3}));
  trace.see({.kind = model::OpKind::kRouterWeights, .layer = 4}, f32({1, 2}, {1, 1.5}));
  EXPECT_EQ(trace.text(),
            "# config_hash=abcd\n"
            "request,position,phase,layer,slot,expert,weight\n"
            "0,4,prefill,3,0,7,1.5\n"
            "0,4,prefill,3,1,1,1\n"
            "2,0,prefill,3,0,0,2.25\n"
            "2,0,prefill,3,1,5,0.25\n"
            "0,5,decode,4,0,2,1\n"
            "0,5,decode,4,1,3,1.5\n");
}

// One MoE layer and one MTP layer, three experts a token. Prompt 5 and 2 tokens, 3 new ones each, no drafts: the last new token is
// never fed, so 7 + 4 rows of the MoE layer; with drafts more, and rows of the MTP layer.
TEST(RoutingTrace, EveryTokenOfEveryMoeLayer_IsThere) {
  const auto weights = [] {
    auto config = reference::small_config();
    config.max_position_embeddings = 64;
    return reference::random_weights(config, 4);
  }();
  const std::vector<reference::Request> requests{{.prompt = {3, 10, 17, 24, 31}, .max_new_tokens = 3},
                                                 {.prompt = {5, 6}, .max_new_tokens = 3}};
  for (const int64_t num_drafts : {0, 1}) {
    RoutingTrace trace("abcd", {5, 2});
    reference::Generator generator(
        weights, reference::v32_rules(reference::Gemm::kFp8, model::ScaleFormat::kFp32), 1, {.num_drafts = num_drafts});
    generator.run(
        requests, [](size_t, const auto&) { return true; }, &trace);
    const auto lines = std::ranges::count(trace.text(), '\n') - 2;
    if (num_drafts == 0) {
      EXPECT_EQ(lines, (7 + 4) * 3);
    } else {
      EXPECT_GT(lines, (7 + 4) * 3 + 7 * 3);
      EXPECT_NE(trace.text().find(",prefill,2,0,"), std::string::npos);  // layer 2 is the MTP layer
    }
  }
}

}  // namespace
}  // namespace tools
