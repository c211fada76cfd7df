// The independent dump of mini, laid out as serving engines write theirs, gets the verdict it gets as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "golden/verdict.hpp"
#include "tests/golden/torch_fixture.hpp"
#include "tests/temp_dir.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using model::TensorView;

// Rows of the first, each followed by the same row of the second.
TensorView fused(const TensorView& first, const TensorView& second) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (int64_t row = 0; row < first.num_rows(); ++row) {
    for (const TensorView& part : {slice_rows(first, row, row + 1), slice_rows(second, row, row + 1)}) {
      bytes->insert(bytes->end(), part.bytes.begin(), part.bytes.end());
    }
  }
  return {first.dtype, {first.num_rows(), first.shape.back() + second.shape.back()}, *bytes, bytes};
}

// [experts, tokens, d], unused rows poisoned with NaN.
TensorView stacked(const std::map<int64_t, TensorView>& experts, int64_t num_tokens) {
  const TensorView& any = experts.begin()->second;
  const int64_t num_experts = mini().checkpoint().config().n_routed_experts;
  const size_t block = static_cast<size_t>(num_tokens * any.row_len() * model::dtype_bytes(any.dtype));
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(num_experts) * block, std::byte{0xFF});
  for (const auto& [expert, tensor] : experts) {
    std::memcpy(bytes->data() + static_cast<size_t>(expert) * block, tensor.bytes.data(), tensor.bytes.size());
  }
  return {any.dtype, {num_experts, num_tokens, any.row_len()}, *bytes, bytes};
}

// Our tensors of case p7 under SGLang's module names.
torch_fixture::Tensors as_sglang(const golden::Dump& dump) {
  const auto at = [&](const std::string& op) { return dump.tensors.at("p7/" + op); };
  torch_fixture::Tensors result{{"model.embed_tokens", at("embed")}};
  for (int64_t l = 0; l < mini().checkpoint().config().num_hidden_layers; ++l) {
    const std::string theirs = "model.layers." + std::to_string(l) + ".";
    const std::string ours = "layer." + std::to_string(l) + ".";
    const std::vector<std::pair<std::string, std::string>> same{{"input_layernorm", "attn_norm"},
                                                                {"self_attn.q_a_layernorm", "attn.q_a_norm"},
                                                                {"self_attn.q_b_proj", "attn.q_b"},
                                                                {"self_attn.kv_a_layernorm", "attn.kv_a_norm"},
                                                                {"self_attn.kv_b_proj", "attn.kv_b"},
                                                                {"self_attn.rotary_emb[0]", "attn.q_rope"},
                                                                {"self_attn.rotary_emb[1]", "attn.k_rope"},
                                                                {"self_attn.o_proj.in[0]", "attn.context"},
                                                                {"self_attn.o_proj", "attn.o_proj"},
                                                                {"post_attention_layernorm[0]", "ffn_norm"},
                                                                {"post_attention_layernorm[1]", "attn_residual"},
                                                                {"mlp", "ffn"}};
    for (const auto& [name, op] : same) {
      result.emplace_back(theirs + name, at(ours + op));
    }
    result.emplace_back(theirs + "self_attn.fused_qkv_a_proj_with_mqa",
                        fused(at(ours + "attn.q_a"), at(ours + "attn.kv_a")));
    result.emplace_back("model.layers." + std::to_string(l) + "[0]", at(ours + "ffn"));
    result.emplace_back("model.layers." + std::to_string(l) + "[1]", at(ours + "attn_residual"));
    const bool dense = dump.tensors.contains("p7/" + ours + "mlp.gate");
    const std::string mlp = dense ? "mlp." : "mlp.shared_experts.";
    const std::string our_mlp = ours + (dense ? "mlp." : "moe.shared.");
    result.emplace_back(theirs + mlp + "gate_up_proj", fused(at(our_mlp + "gate"), at(our_mlp + "up")));
    if (dump.tensors.contains("p7/" + our_mlp + "act")) {
      result.emplace_back(theirs + mlp + "act_fn", at(our_mlp + "act"));
    }
    if (dense) {
      continue;
    }
    result.emplace_back(theirs + "mlp.shared_experts", at(ours + "moe.shared"));
    result.emplace_back(theirs + "mlp.topk[0]", at(ours + "moe.topk_weights"));
    result.emplace_back(theirs + "mlp.topk[1]", at(ours + "moe.topk_ids"));
    std::map<int64_t, TensorView> gate_up;
    std::map<int64_t, TensorView> down;
    for (int64_t e = 0; e < mini().checkpoint().config().n_routed_experts; ++e) {
      const std::string expert = ours + "moe.expert." + std::to_string(e);
      if (dump.tensors.contains("p7/" + expert)) {
        gate_up.emplace(e, fused(at(expert + ".gate"), at(expert + ".up")));
        down.emplace(e, at(expert));
      }
    }
    result.emplace_back(theirs + "mlp.experts.gate_up.stacked", stacked(gate_up, 7));
    result.emplace_back(theirs + "mlp.experts.down.stacked", stacked(down, 7));
  }
  result.emplace_back("model.norm", at("final_norm"));
  result.emplace_back("logits", at("logits"));
  return result;
}

golden::Verdict judged(const std::filesystem::path& path, const std::string& format) {
  const auto golden = mini().record({}, {"p7"});
  const auto dump = golden::read_dump(path, format, mini().checkpoint().config(), golden.manifest.cases);
  EXPECT_EQ(dump.unused, std::vector<std::string>{});
  return mini().compare(golden, dump, {.cases = {"p7"}});
}

// One file a tensor, as SGLang's dumper does it with all modules hooked.
void write_dumper_directory(const TempDir& folder, const torch_fixture::Tensors& tensors) {
  int index = 0;
  for (auto [name, tensor] : tensors) {
    std::string tag = "non_intrusive__" + name;
    if (const size_t bracket = tag.find('['); bracket != std::string::npos) {
      const std::string part = tag.substr(bracket + 1, tag.size() - bracket - 2);
      const bool input = tag.find(".in[") != std::string::npos;
      tag = tag.substr(0, input ? bracket - 3 : bracket) + (input ? ".inputs." : ".output.") + part;
    } else {
      tag += ".output";
    }
    write_bytes(folder / ("step=0___rank=0___dump_index=" + std::to_string(++index) + "___name=" + tag +
                          "___recompute_status=disabled.pt"),
                torch_fixture::value_file(tensor));
  }
}

TEST(EngineDumps, ASglangDumperDirectoryPasses) {
  const TempDir folder;
  write_dumper_directory(folder, as_sglang(mini().dump("v32_fp8.safetensors", "v32")));
  const auto verdict = judged(folder.path(), "sglang");
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
}

TEST(EngineDumps, ASglangPassFilePasses) {
  const TempDir folder;
  auto tensors = as_sglang(mini().dump("v32_fp8.safetensors", "v32"));
  const auto head = tensors.back();
  tensors.pop_back();
  write_bytes(folder / "Pass00000.pt", torch_fixture::torch_file(tensors));
  write_bytes(folder / "Pass00001.pt", torch_fixture::torch_file({{"logits_processor", head.second}}));
  const auto verdict = judged(folder.path(), "sglang");
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
}

TEST(EngineDumps, SwappedHalvesOfAFusedTensorDiverge) {
  const TempDir folder;
  auto tensors = as_sglang(mini().dump("v32_fp8.safetensors", "v32"));
  for (auto& [name, tensor] : tensors) {
    if (name == "model.layers.1.mlp.experts.gate_up.stacked") {
      const int64_t half = tensor.shape.back() / 2 * model::dtype_bytes(tensor.dtype);
      auto bytes = std::make_shared<std::vector<std::byte>>(tensor.bytes.begin(), tensor.bytes.end());
      for (auto row = bytes->begin(); row != bytes->end(); row += 2 * half) {
        std::swap_ranges(row, row + half, row + half);
      }
      tensor.bytes = *bytes;
      tensor.owner = bytes;
    }
  }
  write_dumper_directory(folder, tensors);
  const auto verdict = judged(folder.path(), "sglang");
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kFail);
  ASSERT_NE(verdict.first_divergence(), nullptr);
  EXPECT_NE(verdict.first_divergence()->op.find("layer.1.moe.expert."), std::string::npos)
      << verdict.first_divergence()->op;
}

}  // namespace
}  // namespace tools
