// Recordings that keep hashes or samples, that end early, and that were interrupted.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "model/check.hpp"
#include "reference/op_call.hpp"
#include "tests/temp_dir.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::OpStatus;

const golden::GoldenFile& whole() {
  static const auto file = mini().record({}, {"p7"});
  return file;
}

golden::GoldenFile stored_as(const std::string& store) {
  RecordJob job;
  job.store = golden::parse_store(store, "test");
  return mini().record({}, {"p7"}, job);
}

// Counts what is read.
class CountedWeights : public model::WeightSource {
 public:
  [[nodiscard]] const model::ModelConfig& config() const override { return mini().checkpoint().config(); }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    ++num_reads;
    return mini().checkpoint().weight(name);
  }
  mutable int64_t num_reads = 0;
};

golden::Verdict judged(const model::WeightSource& weights,
                       const golden::GoldenFile& golden,
                       std::map<std::string, model::TensorView> dump) {
  const auto rules = rules_of(mode_of(golden.manifest));
  return golden::compare(weights.config(),
                         golden,
                         {.tensors = std::move(dump), .unused = {}},
                         {},
                         [&](const model::Workload& workload, double num_sigmas) {
                           return std::make_unique<ReferenceRecompute>(weights, rules, workload, num_sigmas, 1);
                         });
}

TEST(HashOnlyGolden, JudgesTheSameBitsWithoutReadingAWeight) {
  const auto golden = stored_as("hash");
  EXPECT_TRUE(golden.tensors.empty());
  const CountedWeights weights;
  const auto verdict = judged(weights, golden, whole().tensors);
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
  EXPECT_EQ(std::ranges::count(verdict.ops, OpStatus::kSame, &golden::OpResult::status),
            static_cast<int64_t>(whole().tensors.size()));
  EXPECT_EQ(weights.num_reads, 0);
}

TEST(HashOnlyGolden, RecomputesWhatDiffers_AndNamesIt) {
  const auto golden = stored_as("hash");
  auto dump = whole().tensors;
  auto& changed = dump.at("p7/layer.1.attn.q_a");
  auto codes = std::vector<uint16_t>(changed.codes<uint16_t>().begin(), changed.codes<uint16_t>().end());
  codes[5] ^= 0x0040;
  changed = model::make_tensor(changed.dtype, changed.shape, std::move(codes));
  const CountedWeights weights;
  const auto verdict = judged(weights, golden, dump);
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kFail);
  ASSERT_NE(verdict.first_divergence(), nullptr);
  EXPECT_EQ(verdict.first_divergence()->op, "layer.1.attn.q_a");
  EXPECT_EQ(verdict.first_divergence()->free_status, "differs");
}

TEST(SampledGolden, KeepsElementsAtPlacesOfTheSize_AndTheHash) {
  const auto golden = stored_as("hash:*.moe.*,sample:*");
  EXPECT_FALSE(golden.tensors.contains("p7/logits"));
  const auto& sample = golden.tensors.at("p7/logits.sample");
  const auto logits = model::to_double(whole().tensors.at("p7/logits"));
  const auto places = golden::sample_places(static_cast<int64_t>(logits.size()));
  const auto sampled = model::to_double(sample);
  ASSERT_EQ(sampled.size(), static_cast<size_t>(golden::kNumSamples));
  for (size_t i = 0; i < sampled.size(); ++i) {
    EXPECT_EQ(sampled[i], logits[static_cast<size_t>(places[i])]);
  }
  EXPECT_TRUE(std::ranges::is_sorted(places));
  EXPECT_EQ(golden.manifest.reduced.at("p7/logits").hash, golden::content_hash(whole().tensors.at("p7/logits")));
  EXPECT_FALSE(golden.tensors.contains("p7/layer.1.moe.router_logits.sample"));
}

TEST(Store, UnknownForms_AreRefused) {
  for (const char* text : {"all", "hash:", "sample:*,half:*"}) {
    EXPECT_THROW((void)golden::parse_store(text, "--store"), model::InputError) << text;
  }
}

TEST(Record, EndsWithTheLastOpThatIsAskedFor) {
  RecordJob job;
  job.ops = {"layer.1.moe.*"};
  const auto golden = mini().record({}, {"p7"}, job);
  EXPECT_TRUE(golden.tensors.contains("p7/layer.1.moe.topk_ids"));
  for (const auto& [name, tensor] : golden.tensors) {
    EXPECT_EQ(golden::content_hash(tensor), golden::content_hash(whole().tensors.at(name))) << name;
  }
  for (const auto& [name, hash] : golden.manifest.weight_hashes) {
    EXPECT_FALSE(name.starts_with("model.layers.2.") || name == "lm_head.weight") << name << " was read";
  }
}

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

// Records p7 and two decode steps with a journal; stops before op number `limit`. Returns how many were computed.
int64_t record_with_journal(const std::string& journal, int64_t limit, golden::GoldenFile* golden = nullptr) {
  int64_t num_computed = 0;
  RecordJob job;
  job.journal = journal;
  job.identity = "this run";
  job.num_decode = 2;
  job.run = [&](const reference::OpCall& call) {
    if (num_computed == limit) {
      throw Interrupted();
    }
    ++num_computed;
    return reference::run_op(call);
  };
  auto recorded = mini().record({}, {"p7"}, job);
  if (golden != nullptr) {
    *golden = std::move(recorded);
  }
  return num_computed;
}

TEST(Journal, AnInterruptedRecording_GoesOnWhereItWas) {
  const TempDir directory;
  const std::string journal = (directory / "g.journal").string();
  golden::GoldenFile straight;
  const int64_t total = record_with_journal((directory / "other.journal").string(), -1, &straight);
  EXPECT_FALSE(std::filesystem::exists(directory / "other.journal"));
  EXPECT_THROW(record_with_journal(journal, 100), Interrupted);
  EXPECT_THROW(record_with_journal(journal, 100), Interrupted);
  // The last entry is half written.
  std::filesystem::resize_file(journal, std::filesystem::file_size(journal) - 3);
  golden::GoldenFile resumed;
  EXPECT_EQ(record_with_journal(journal, -1, &resumed), total - 199);
  EXPECT_FALSE(std::filesystem::exists(journal));
  ASSERT_EQ(resumed.tensors.size(), straight.tensors.size());
  for (const auto& [name, tensor] : straight.tensors) {
    EXPECT_EQ(golden::content_hash(resumed.tensors.at(name)), golden::content_hash(tensor)) << name;
  }
}

TEST(Journal, OfAnotherRunOrDamaged_IsRefused) {
  const TempDir directory;
  const std::string journal = (directory / "g.journal").string();
  EXPECT_THROW(record_with_journal(journal, 50), Interrupted);
  std::string bytes(std::filesystem::file_size(journal), '\0');
  std::ifstream(journal, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  auto damaged = bytes;
  damaged[damaged.size() - 10] ^= 1;  // in the values of the last entry
  std::ofstream(journal, std::ios::binary) << damaged;
  EXPECT_THROW(record_with_journal(journal, -1), model::InputError);
  auto other = bytes;
  other.replace(other.find("this run"), 8, "that run");
  std::ofstream(journal, std::ios::binary) << other;
  EXPECT_THROW(record_with_journal(journal, -1), model::InputError);
}

}  // namespace
}  // namespace tools
