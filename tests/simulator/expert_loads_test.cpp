#include "simulator/expert_loads.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "model/check.hpp"
#include "simulator/routing_trace.hpp"
#include "simulator/skew.hpp"

namespace simulator {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  FilesTest() : folder_(std::filesystem::path(::testing::TempDir()) / "dsv3_expert_loads") {
    std::filesystem::create_directories(folder_);
  }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  static std::string message(const std::function<void()>& action) {
    try {
      action();
    } catch (const model::InputError& error) {
      return error.what();
    }
    return "accepted";
  }

 private:
  std::filesystem::path folder_;
};

using Loads = std::vector<std::vector<double>>;

TEST_F(FilesTest, EveryFormOfLoads_IsRead) {
  const Loads expected{{1, 2, 0}, {3, 4, 5}};
  EXPECT_EQ(read_expert_loads(write("long.csv", "layer,expert,count\n3,0,1\n3,1,2\n4,0,3\n4,1,1\n4,1,3\n4,2,5\n")),
            expected);
  EXPECT_EQ(read_expert_loads(write("wide.csv", "layer,expert_0,expert_1,expert_2\n3,1,2,0\n4,3,4,5\n")), expected);
  EXPECT_EQ(read_expert_loads(write("bare.csv", "0,1,2\n1,2,0\n3,4,5\n")), expected);
  // SGLang's expert distribution recorder: [steps][layers][experts].
  EXPECT_EQ(
      read_expert_loads(write("sglang.json", R"({"rank":0,"logical_count":[[[1,1,0],[3,0,5]],[[0,1,0],[0,4,0]]]})")),
      expected);
  EXPECT_EQ(read_expert_loads(write("eplb.json", "[[1,2,0],[3,4,5]]")), expected);
}

TEST_F(FilesTest, BrokenLoads_AreRefusedByLine) {
  EXPECT_NE(message([&] { read_expert_loads(write("a.csv", "layer,expert,count\n0,0,1\n0,1,-2\n")); }).find("a.csv:3"),
            std::string::npos);
  EXPECT_NE(message([&] { read_expert_loads(write("b.csv", "layer,expert,count\n0,0,0\n")); }).find("above 0"),
            std::string::npos);
  EXPECT_NE(message([&] { read_expert_loads(write("c.csv", "a,b\n1,2\n")); }).find("expected loads"),
            std::string::npos);
  EXPECT_NE(
      message([&] { read_expert_loads(write("d.json", R"({"logical_count":[[1],["x"]]})")); }).find("expected a count"),
      std::string::npos);
  EXPECT_NE(message([&] { read_expert_loads(write("e.json", "[[1,2],[3]]")); }).find("layer 1"), std::string::npos);
  EXPECT_NE(message([&] { read_expert_loads("x.pt"); }).find("torch.load"), std::string::npos);
  EXPECT_NE(message([&] { read_expert_loads("nowhere.csv"); }).find("nowhere.csv"), std::string::npos);
}

TEST_F(FilesTest, EveryFormOfTrace_GivesTheSameLoads) {
  const Loads expected{{2, 1, 0, 1}, {0, 1, 2, 1}};
  EXPECT_EQ(
      read_routing_trace(write(
          "rows.csv",
          "layer,token,expert,weight\n3,0,0,0.5\n3,0,1,0.5\n3,1,3,1\n3,1,0,1\n4,0,2,1\n4,0,1,1\n4,1,2,1\n4,1,3,1\n")),
      expected);
  EXPECT_EQ(
      read_routing_trace(write("columns.csv", "layer,token,expert_0,expert_1\n3,0,0,1\n3,1,3,0\n4,0,2,1\n4,1,2,3\n")),
      expected);
  EXPECT_EQ(read_routing_trace(
                write("lists.csv", "layer,token,ids,weights\n3,0,0 1,0.5 0.5\n3,1,3;0,1\n4,0,2 1,1\n4,1,2 3,1\n")),
            expected);
  // vLLM's response: prompt tokens at its top, generated ones in the choices, each [tokens][layers][k].
  EXPECT_EQ(
      read_routing_trace(write(
          "vllm.json", R"({"prompt_routed_experts":[[[0,1],[2,1]]],"choices":[{"routed_experts":[[[3,0],[2,3]]]}]})")),
      expected);
}

// numpy 2 wrote them: np.save of [[[0,0],[0,1],[2,1]],[[0,0],[3,0],[2,3]]] as uint8, and its bytes as int32 and uint16. The first layer
// is dense.
TEST_F(FilesTest, IdsInBase64_AreThoseOfTheEngines) {
  const Loads expected{{2, 1, 0, 1}, {0, 1, 2, 1}};
  const std::string npy =
      "k05VTVBZAQB2AHsnZGVzY3InOiAnfHUxJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDMs"
      "IDIpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAAB"
      "AgEAAAMAAgM=";
  EXPECT_EQ(read_routing_trace(write("vllm_npy.json", R"({"choices":[{"routed_experts":")" + npy + R"("}]})")),
            expected);
  const std::string int32 = "AAAAAAAAAAAAAAAAAQAAAAIAAAABAAAAAAAAAAAAAAADAAAAAAAAAAIAAAADAAAA";
  const std::string meta = R"({"meta_info":{"prompt_tokens":2,"completion_tokens":1,"routed_experts":")";
  EXPECT_EQ(trace_loads(read_trace(write("sglang.json", meta + int32 + "\"}}"), 2), 0), expected);
  const std::string uint16 = "AAAAAAAAAQACAAEAAAAAAAMAAAACAAMA";
  const std::string typed = meta + uint16 + R"(","routed_experts_dtype":"uint16"}})";
  EXPECT_EQ(trace_loads(read_trace(write("sglang16.json", typed), 2), 0), expected);
  // Several responses in one file.
  EXPECT_EQ(trace_loads(read_trace(write("list.json", "[" + typed + "," + typed + "]"), 2), 0)[0],
            (std::vector<double>{4, 2, 0, 2}));
}

TEST_F(FilesTest, BrokenBase64_IsRefused) {
  const auto vllm = [&](const std::string& text) {
    return message([&] { read_trace(write("bad.json", R"({"choices":[{"routed_experts":")" + text + R"("}]})")); });
  };
  EXPECT_NE(vllm("!!").find("expected base64"), std::string::npos);
  EXPECT_NE(vllm("AAAA").find(".npy"), std::string::npos);
  const std::string sglang =
      R"({"meta_info":{"prompt_tokens":2,"completion_tokens":2,"routed_experts":"AAAAAAAAAAA="}})";
  EXPECT_NE(message([&] { read_trace(write("odd.json", sglang), 8); }).find("2 expert ids"), std::string::npos);
}

TEST_F(FilesTest, BrokenTraces_AreRefused) {
  // What dsv3-infer writes; position 1 came twice, first as a draft.
  EXPECT_EQ(read_routing_trace(write("infer.csv",
                                     "# config_hash=ab\nrequest,position,phase,layer,slot,expert,weight\n"
                                     "0,0,prefill,3,0,0,1\n0,0,prefill,3,1,2,0.5\n"
                                     "0,1,decode,3,0,1,1\n0,1,decode,3,1,3,0.5\n"
                                     "0,1,decode,3,0,3,1\n0,1,decode,3,1,2,0.5\n")),
            (std::vector<std::vector<double>>{{1, 1, 2, 2}}));
  EXPECT_EQ(read_trace(write("again.csv",
                             "request,position,phase,layer,slot,expert,weight\n"
                             "0,1,decode,3,0,1,1\n0,1,decode,3,1,3,0.5\n0,1,decode,3,0,3,1\n0,1,decode,3,1,2,0.5\n"))
                .layers[0]
                .tokens.size(),
            2U);
  EXPECT_NE(message([&] { read_trace(write("t.csv", "layer,token,expert\n0,0,x\n")); }).find("t.csv:2"),
            std::string::npos);
  EXPECT_NE(message([&] { read_trace(write("u.csv", "layer,expert\n0,1\n")); }).find("token"), std::string::npos);
  EXPECT_NE(message([&] {
              read_trace(write("v.json", R"({"choices":[{"routed_experts":[[1]]}]})"));
            }).find("[tokens][layers][k]"),
            std::string::npos);
  EXPECT_NE(message([&] { read_trace(write("w.json", "{}")); }).find("without tokens"), std::string::npos);
}

TEST_F(FilesTest, Skew_TakesLoadsLayerByLayer) {
  const Skew skew = parse_skew("file:" + write("s.csv", "0,1,2,3\n1,1,1,1\n1,1,1,5\n").string());
  const auto layers = model_popularity(skew, 4, 2, 16, 3, 0, 1);
  EXPECT_EQ(layers[0], (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
  EXPECT_EQ(layers[1], (std::vector<double>{0.125, 0.125, 0.125, 0.625}));
  EXPECT_EQ(layers[2], layers[0]);
  EXPECT_THROW(model_popularity(skew, 8, 2, 16, 1, 0, 1), model::InputError);
}

}  // namespace
}  // namespace simulator
