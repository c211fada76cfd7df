// The dumps of other people's code, read in full: every op that the op table expects of such a dump is there, and single values
// are those that python finds in the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "golden/formats.hpp"
#include "tests/shared_data.hpp"

namespace {

using golden::Case;
using golden::Dump;
using Names = std::set<std::string>;

struct File {
  const char* fixture;
  const char* variant;
};

struct Loaded {
  model::ModelConfig config;
  std::vector<Case> cases;
  Dump dump;
};

std::string format_of(const std::string& variant) {
  return variant.starts_with("hf") ? "hf" : "v32";
}

Loaded load(const std::string& fixture, const std::string& variant) {
  const auto folder = *shared_data("oracle/" + fixture);
  Loaded loaded{.config = model::read_config(folder / "checkpoint"),
                .cases = golden::read_cases(folder / "prompts.json"),
                .dump = {}};
  loaded.dump = golden::read_dump(folder / (variant + ".safetensors"), format_of(variant), loaded.config, loaded.cases);
  return loaded;
}

void add(Names& names, const std::string& prefix, std::initializer_list<const char*> suffixes) {
  for (const char* suffix : suffixes) {
    names.insert(prefix + suffix);
  }
}

// What a full dump holds of one layer, after the op table. Ops that these dumps never hold: q_latent, o_latent, lse, group_ids,
// an expert's act; hf also lacks router_scores and single experts, the official code router_logits and the routed sum.
Names layer_names(
    const std::string& prefix, const model::ModelConfig& config, bool moe, bool hf, bool expanded, bool rotations) {
  Names names;
  add(names, prefix, {"attn_norm", "attn.kv_a", "attn.kv_a_norm", "attn.probs", "attn.context", "attn.o_proj"});
  add(names, prefix, {"attn_residual", "ffn_norm", "ffn", "output"});
  if (config.q_lora_rank) {
    add(names, prefix, {"attn.q_a", "attn.q_a_norm", "attn.q_b"});
  } else {
    add(names, prefix, {"attn.q"});
  }
  if (rotations) {
    add(names, prefix, {"attn.q_rope", "attn.k_rope"});
  }
  if (expanded) {
    add(names, prefix, {"attn.kv_b"});
  }
  if (!moe) {
    add(names, prefix, {"mlp.gate", "mlp.up", "mlp.act"});
    return names;
  }
  add(names, prefix, {"moe.topk_ids", "moe.topk_weights", "moe.shared", "moe.shared.gate", "moe.shared.up"});
  add(names, prefix, {hf ? "moe.router_logits" : "moe.router_scores"});
  if (hf) {
    add(names, prefix, {"moe.routed"});
  }
  return names;
}

// Expected names of one case of a full dump.
Names full_names(const Loaded& loaded, const Case& which, const std::string& variant) {
  const model::ModelConfig& c = loaded.config;
  const bool hf = variant.starts_with("hf");
  const bool v32 = variant.starts_with("v32");
  const bool expanded = hf || variant.ends_with("naive") || (v32 && which.num_tokens() > 1);
  Names names{"embed", "final_norm", "logits"};
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string prefix = "layer." + std::to_string(layer) + ".";
    const bool moe = layer >= c.first_k_dense_replace;
    names.merge(layer_names(prefix, c, moe, hf, expanded, true));
    if (moe) {
      names.insert(prefix + "moe.shared.act");
    }
    if (moe && !hf) {
      // Every expert that a token chose, after the dump's own ids.
      for (const double id : model::to_double(loaded.dump.tensors.at(which.name + "/" + prefix + "moe.topk_ids"))) {
        const std::string expert = prefix + "moe.expert." + std::to_string(static_cast<int64_t>(id));
        add(names, expert, {"", ".gate", ".up"});
      }
    }
    const bool caches_latent = hf || !variant.ends_with("naive");
    if (!caches_latent && (which.name == "p7" || which.name == "d7")) {
      names.insert("cache." + std::to_string(layer) + ".keys");
      names.insert("cache." + std::to_string(layer) + ".values");
    }
    if (caches_latent && (which.name == "p7" || which.name == "d7")) {
      names.insert("cache." + std::to_string(layer) + ".latent");
    }
  }
  if (hf && which.name == "p7") {
    for (int64_t k = 0; k < c.num_nextn_predict_layers; ++k) {
      const std::string prefix = "mtp." + std::to_string(k) + ".";
      add(names, prefix, {"enorm", "hnorm", "eh_proj", "norm", "logits"});
      names.merge(layer_names(prefix + "layer.", c, true, hf, expanded, false));
    }
  }
  return names;
}

Names names_of_case(const Dump& dump, const std::string& which) {
  Names names;
  for (const auto& [name, tensor] : dump.tensors) {
    if (name.starts_with(which + "/")) {
      names.insert(name.substr(which.size() + 1));
    }
  }
  return names;
}

Names difference(const Names& left, const Names& right) {
  Names only_left;
  std::ranges::set_difference(left, right, std::inserter(only_left, only_left.end()));
  return only_left;
}

class FormatsOracle : public testing::TestWithParam<File> {
 protected:
  void SetUp() override {
    const std::string name = std::string("oracle/") + GetParam().fixture + "/" + GetParam().variant + ".safetensors";
    SKIP_UNLESS_THERE(shared_data(name));
  }
};

using FullDumps = FormatsOracle;
using AllDumps = FormatsOracle;

TEST_P(FullDumps, HoldExactlyWhatTheOpTableExpects) {
  const Loaded loaded = load(GetParam().fixture, GetParam().variant);
  for (const Case& which : loaded.cases) {
    if (!Names{"p1", "p2", "p7", "d0", "d7"}.contains(which.name)) {
      continue;
    }
    const Names expected = full_names(loaded, which, GetParam().variant);
    const Names found = names_of_case(loaded.dump, which.name);
    EXPECT_EQ(difference(expected, found), Names{}) << which.name << ": missing";
    EXPECT_EQ(difference(found, expected), Names{}) << which.name << ": not expected";
  }
}

TEST_P(AllDumps, HoldRoutingAndLogitsOfEveryCase) {
  const Loaded loaded = load(GetParam().fixture, GetParam().variant);
  EXPECT_EQ(loaded.cases.size(), 14U);
  for (const Case& which : loaded.cases) {
    ASSERT_TRUE(loaded.dump.tensors.contains(which.name + "/logits")) << which.name;
    const auto& logits = loaded.dump.tensors.at(which.name + "/logits");
    const auto num_rows = which.rows.empty() ? which.num_tokens() : static_cast<int64_t>(which.rows.size());
    EXPECT_EQ(logits.shape, (model::Shape{num_rows, loaded.config.vocab_size})) << which.name;
    for (int64_t layer = loaded.config.first_k_dense_replace; layer < loaded.config.num_hidden_layers; ++layer) {
      const std::string moe = which.name + "/layer." + std::to_string(layer) + ".moe.";
      ASSERT_TRUE(loaded.dump.tensors.contains(moe + "topk_ids")) << moe;
      EXPECT_EQ(loaded.dump.tensors.at(moe + "topk_ids").dtype, model::DType::kI32);
      EXPECT_TRUE(loaded.dump.tensors.contains(moe + "topk_weights")) << moe;
    }
  }
}

// Constants, other MTP wirings, the expanded cache, the same tensor under a second name, sums known from the layer before.
TEST_P(AllDumps, LeaveOnlyKnownNamesUnused) {
  const std::regex known(
      R"(const/.*|\w+/mtp_var\..*|\w+/logits_last|\w+/cache\.\d+\.[kv]_cache|\w+/layers\.\d+\.attn(_norm\.(in|resid))?|)"
      R"(\w+/layers\.\d+\.ffn\.(w2|(experts\.\d+|shared_experts)\.w2)|\w+/norm\.(in|resid)|\w+/layers\.\d+\.ffn_norm\.resid|)"
      R"(\w+/(model\.layers\.\d+|mtp\.\d+\.mtp_block)\.(self_attn|mlp\.(shared_experts\.)?down_proj))");
  const Loaded loaded = load(GetParam().fixture, GetParam().variant);
  for (const std::string& name : loaded.dump.unused) {
    EXPECT_TRUE(std::regex_match(name, known)) << name;
  }
}

std::string test_name(const testing::TestParamInfo<File>& info) {
  return std::string(info.param.fixture) + "_" + info.param.variant;
}

INSTANTIATE_TEST_SUITE_P(Oracle,
                         FullDumps,
                         testing::Values(File{"mini", "hf_f64"},
                                         File{"mini", "hf_bf16"},
                                         File{"mini", "v3_bf16_naive"},
                                         File{"mini", "v3_fp8_absorb"},
                                         File{"mini", "v32_fp8"},
                                         File{"nano", "hf_f64"},
                                         File{"nano", "hf_bf16"},
                                         File{"nano", "v3_bf16_naive"},
                                         File{"nano", "v3_fp8_absorb"},
                                         File{"nano", "v32_fp8"},
                                         File{"ragged", "hf_f64"},
                                         File{"ragged", "hf_bf16"},
                                         File{"ragged", "v3_bf16_naive"},
                                         File{"ragged", "v3_fp8_absorb"},
                                         File{"ragged", "v32_fp8"},
                                         File{"notv3", "hf_f64_eps"},
                                         File{"notv3", "hf_bf16_eps"},
                                         File{"notv3", "v3_bf16_naive"}),
                         test_name);

std::vector<File> all_files() {
  std::vector<File> files;
  for (const char* variant :
       {"hf_f64", "hf_f32", "hf_bf16", "v3_bf16_naive", "v3_fp8_absorb", "v32_fp8", "v32_fp8ue8m0"}) {
    for (const char* fixture : {"mini", "nano", "ragged"}) {
      files.push_back({fixture, variant});
    }
  }
  for (const char* variant :
       {"v3_bf16_naive_nb", "v3_bf16_absorb", "v3_fp8_naive", "v3_fp8ue8m0_naive", "v3_fp8ue8m0_absorb"}) {
    files.push_back({"nano", variant});
    files.push_back({"ragged", variant});
  }
  for (const char* variant : {"hf_f64",
                              "hf_f64_eps",
                              "hf_f32",
                              "hf_bf16",
                              "hf_bf16_eps",
                              "v3_bf16_naive",
                              "v3_bf16_naive_nb",
                              "v3_bf16_absorb"}) {
    files.push_back({"notv3", variant});
  }
  return files;
}

INSTANTIATE_TEST_SUITE_P(Oracle, AllDumps, testing::ValuesIn(all_files()), test_name);

struct Spot {
  const char* fixture;
  const char* variant;
  const char* name;
  model::Shape shape;
  int64_t index;  // into the flattened tensor
  double value;
};

class SpotValues : public testing::TestWithParam<Spot> {};

TEST_P(SpotValues, AreWhatPythonReads) {
  const Spot& spot = GetParam();
  SKIP_UNLESS_THERE(shared_data(std::string("oracle/") + spot.fixture));
  const Dump dump = load(spot.fixture, spot.variant).dump;
  ASSERT_TRUE(dump.tensors.contains(spot.name));
  const auto& tensor = dump.tensors.at(spot.name);
  EXPECT_EQ(tensor.shape, spot.shape);
  EXPECT_EQ(model::to_double(tensor)[static_cast<size_t>(spot.index)], spot.value);
}

// Read with numpy from the tensors of the file, header by json, BF16 by shifting 16 bits; the indices are the foreign ones.
INSTANTIATE_TEST_SUITE_P(
    Oracle,
    SpotValues,
    testing::Values(
        // model.layers.0.self_attn.q_rot[0, 2, 5, 9]: second member of pair 1, so place 3
        Spot{"nano", "hf_bf16", "p7/layer.0.attn.q_rope", {7, 4, 16}, (5 * 4 + 2) * 16 + 3, -1.84375},
        // the same row, [2]: first member of pair 2, so place 4
        Spot{"nano", "hf_bf16", "p7/layer.0.attn.q_rope", {7, 4, 16}, (5 * 4 + 2) * 16 + 4, -2.765625},
        // cache.1.k_rot[0, 0, 6, 10]: second member of pair 2, behind 128 latent values
        Spot{"nano", "hf_bf16", "p7/cache.1.latent", {7, 144}, 6 * 144 + 128 + 5, -0.58203125},
        // cache.1.kv_nope[0, 0, 6, 127]
        Spot{"nano", "hf_bf16", "p7/cache.1.latent", {7, 144}, 6 * 144 + 127, -0.01336669921875},
        // model.layers.2.self_attn.probs[0, 1, 6, 3]
        Spot{"nano", "hf_bf16", "p7/layer.2.attn.probs", {7, 4, 7}, (6 * 4 + 1) * 7 + 3, 0.05126953125},
        // model.layers.0.self_attn.kv_b_proj[0, 0, 14, 255]: all fifteen keys of the last decode step
        Spot{"nano", "hf_bf16", "d7/layer.0.attn.kv_b", {15, 256}, 14 * 256 + 255, 1.359375},
        // logits[1, 1, 3]: row 10 of the flattened batch
        Spot{"nano", "hf_bf16", "b2/logits", {18, 512}, 10 * 512 + 3, 2.546875},
        // mtp.0.mtp_block.self_attn.q_b_proj[0, 4, 100]
        Spot{"nano", "hf_bf16", "p7/mtp.0.layer.attn.q_b", {7, 192}, 4 * 192 + 100, -0.0291748046875},
        // model.layers.3.mlp.gate.indices[4] is 15 9 10 12: not sorted, and left so
        Spot{"nano", "hf_bf16", "p7/layer.3.moe.topk_ids", {7, 4}, 4 * 4 + 1, 9},
        // model.layers.2[0, 0, 319]
        Spot{"ragged", "hf_f64", "d7/layer.2.output", {1, 320}, 319, 0.030469954000800437},
        // layers.1.x[0, 2, 17] = 0.09716796875, layers.1.residual there = -0.1533203125
        Spot{"nano", "v32_fp8", "p7/layer.1.output", {7, 256}, 2 * 256 + 17, -0.05615234375},
        // layers.3.attn.probs[0, 0, 3, 12]
        Spot{"nano", "v32_fp8", "d7/layer.3.attn.probs", {1, 4, 15}, 3 * 15 + 12, 0.05948803573846817},
        // cache.2.kv_cache[0, 14, 0] and cache.2.pe_cache[0, 14, 15]
        Spot{"nano", "v32_fp8", "d7/cache.2.latent", {15, 144}, 14 * 144, 0.04248046875},
        Spot{"nano", "v32_fp8", "d7/cache.2.latent", {15, 144}, 14 * 144 + 143, 1.5625},
        // logits[0, 15, 639]: the last of the sixteen stored rows
        Spot{"notv3", "v3_bf16_naive", "p129/logits", {16, 640}, 15 * 640 + 639, -2.46875},
        // layers.1.ffn.experts.1[2, 5]: rows of tokens 2, 3, 4
        Spot{"notv3", "v3_bf16_naive", "p7/layer.1.moe.expert.1", {3, 256}, 2 * 256 + 5, -0.004638671875}));

}  // namespace
