#include "golden/store.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "model/safetensors.hpp"
#include "tests/temp_dir.hpp"

namespace {

using golden::GoldenFile;
using golden::Manifest;
using model::DType;

GoldenFile sample() {
  GoldenFile golden;
  golden.manifest = {.mode = "published",
                     .profile = "v32",
                     .gemm = "fp8",
                     .scale = "ue8m0",
                     .attention = "by-length",
                     .rules = {{"rms_norm", "rounded once"}},
                     .checkpoint = "somewhere",
                     .checkpoint_hash = "0123456789abcdef",
                     .weight_hashes = {{"model.norm.weight", "00000000000000ff"}},
                     .tensor_hashes = {},
                     .cases = {{.name = "p2", .sequences = {{3, 4}}, .mtp_ids = {5}, .rows = {1}},
                               {.name = "d0", .after = "p2", .sequences = {{6}}}},
                     .ops = {"layer.0.*"},
                     .fault = "bb-07",
                     .commit = "abc",
                     .version = "0.1.0"};
  golden.tensors["p2/logits"] = model::make_tensor(DType::kF32, {1, 2}, std::vector<float>{1, -2});
  golden.tensors["p2/layer.0.moe.topk_ids"] = model::make_tensor(DType::kI32, {2, 1}, std::vector<int32_t>{7, 9});
  return golden;
}

// What read_golden says about a safetensors file with this manifest text; empty when it accepts it.
std::string refusal(const std::map<std::string, std::string>& metadata) {
  const TempDir folder;
  const auto tensor = model::make_tensor(DType::kF32, {1, 2}, std::vector<float>{1, -2});
  model::write_safetensors(folder / "g.safetensors", {{"p2/logits", tensor}}, metadata);
  try {
    golden::read_golden(folder / "g.safetensors");
  } catch (const model::InputError& error) {
    return error.what();
  }
  return "";
}

std::string manifest(const std::string& version, const std::string& hashes, const std::string& more = "") {
  return R"({"format_version": )" + version +
         R"(, "mode": "exact", "profile": "", "gemm": "bf16", "scale": "fp32", "attention": "naive", "rules": {}, )" +
         R"("checkpoint": "", "checkpoint_hash": "", "weight_hashes": {}, "tensor_hashes": )" + hashes +
         R"(, "cases": [], "ops": [], "fault": "", "commit": "", "version": "")" + more + "}";
}

// XXH3-64 of the bytes of 1.0f, -2.0f in little-endian order, computed with python-xxhash.
const char* const kGoodHashes = R"({"p2/logits": "28a0ba9c345d3723"})";

TEST(Store, ContentHashIsXxh3Of64Bits) {
  EXPECT_EQ(golden::content_hash(model::make_tensor(DType::kF32, {1, 2}, std::vector<float>{1, -2})),
            "28a0ba9c345d3723");
  // The published XXH3-64 of no bytes.
  EXPECT_EQ(golden::content_hash(model::make_tensor(DType::kF32, {0, 2}, std::vector<float>{})), "2d06800538d394c2");
}

TEST(Store, RoundTripKeepsTensorsAndEveryManifestField) {
  const TempDir folder;
  golden::write_golden(folder / "g.safetensors", sample());
  const GoldenFile read = golden::read_golden(folder / "g.safetensors");
  const Manifest expected = sample().manifest;
  EXPECT_EQ(read.manifest.mode, expected.mode);
  EXPECT_EQ(read.manifest.profile, expected.profile);
  EXPECT_EQ(read.manifest.gemm, expected.gemm);
  EXPECT_EQ(read.manifest.scale, expected.scale);
  EXPECT_EQ(read.manifest.attention, expected.attention);
  EXPECT_EQ(read.manifest.rules, expected.rules);
  EXPECT_EQ(read.manifest.checkpoint, expected.checkpoint);
  EXPECT_EQ(read.manifest.checkpoint_hash, expected.checkpoint_hash);
  EXPECT_EQ(read.manifest.weight_hashes, expected.weight_hashes);
  EXPECT_EQ(read.manifest.cases, expected.cases);
  EXPECT_EQ(read.manifest.ops, expected.ops);
  EXPECT_EQ(read.manifest.fault, expected.fault);
  EXPECT_EQ(read.manifest.commit, expected.commit);
  EXPECT_EQ(read.manifest.version, expected.version);
  EXPECT_EQ(read.manifest.tensor_hashes.size(), 2U);
  EXPECT_EQ(read.manifest.tensor_hashes.at("p2/logits"), "28a0ba9c345d3723");

  ASSERT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(model::to_double(read.tensors.at("p2/logits")), (std::vector<double>{1, -2}));
  const auto& ids = read.tensors.at("p2/layer.0.moe.topk_ids");
  EXPECT_EQ(ids.dtype, DType::kI32);
  EXPECT_EQ(ids.shape, (model::Shape{2, 1}));
  EXPECT_EQ(model::to_double(ids), (std::vector<double>{7, 9}));
}

TEST(Store, TheSameContentGivesTheSameBytes) {
  const TempDir folder;
  golden::write_golden(folder / "a", sample());
  golden::write_golden(folder / "b", sample());
  EXPECT_EQ(read_bytes(folder / "a"), read_bytes(folder / "b"));
}

TEST(Store, OtherReadersSeeAPlainSafetensorsFile) {
  const TempDir folder;
  golden::write_golden(folder / "g.safetensors", sample());
  EXPECT_EQ(model::read_safetensors(folder / "g.safetensors").metadata.at("format"), "pt");
}

TEST(Store, ArgumentsOfAnyBytesAreWritten) {
  const TempDir folder;
  GoldenFile golden = sample();
  golden.manifest.checkpoint = "\xff\xfe";
  golden::write_golden(folder / "g", golden);
  EXPECT_NO_THROW(golden::read_golden(folder / "g"));
}

TEST(Store, AFlippedBitIsFoundAndTheTensorNamed) {
  const TempDir folder;
  golden::write_golden(folder / "g.safetensors", sample());
  std::string bytes = read_bytes(folder / "g.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // the last byte belongs to the last tensor, p2/logits
  write_bytes(folder / "g.safetensors", bytes);
  try {
    golden::read_golden(folder / "g.safetensors");
    FAIL() << "accepted";
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("tensor p2/logits: bytes have hash"), std::string::npos) << error.what();
  }
}

TEST(Store, AHandWrittenManifestIsAccepted) {
  EXPECT_EQ(refusal({{"dsv3", manifest("1", kGoodHashes)}}), "");
}

TEST(Store, UnknownFieldsAreIgnored) {
  EXPECT_EQ(refusal({{"dsv3", manifest("1", kGoodHashes, R"(, "later": {"x": [1]})")}}), "");
}

TEST(Store, AMissingManifestIsRefused) {
  EXPECT_NE(refusal({}).find("not a golden file"), std::string::npos);
  EXPECT_NE(refusal({{"format", "pt"}}).find("not a golden file"), std::string::npos);
}

TEST(Store, ANewerFormatVersionIsRefusedByNumber) {
  EXPECT_NE(refusal({{"dsv3", R"({"format_version": 2})"}}).find("format version 2 is newer"), std::string::npos);
}

TEST(Store, WrongVersionsAreRefused) {
  for (const char* version : {"0", "-1", "1.0", "\"1\"", "null", "18446744073709551615"}) {
    EXPECT_NE(refusal({{"dsv3", manifest(version, kGoodHashes)}}).find("format_version"), std::string::npos) << version;
  }
}

TEST(Store, HashesAndTensorsMustNameEachOther) {
  EXPECT_NE(refusal({{"dsv3", manifest("1", "{}")}}).find("p2/logits has no hash"), std::string::npos);
  EXPECT_NE(refusal({{"dsv3", manifest("1", R"({"p2/logits": "28a0ba9c345d3723", "p2/embed": "0"})")}})
                .find("p2/embed is missing"),
            std::string::npos);
}

TEST(Store, BrokenManifestsAreRefused) {
  const std::string good = manifest("1", kGoodHashes);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text :
       {std::string("{"),
        std::string("[]"),
        std::string("{}"),
        with("\"mode\": \"exact\", ", ""),
        with("\"exact\"", "3"),
        with("\"rules\": {}", "\"rules\": {\"a\": 1}"),
        with("\"ops\": []", "\"ops\": {}"),
        with("\"cases\": []", R"("cases": [{"name": "p"}])"),
        with("\"cases\": []", R"("cases": [{"name": "p", "after": "", "sequences": [], "mtp_ids": [], "rows": []}])"),
        with("\"cases\": []",
             R"("cases": [{"name": "p", "after": "", "sequences": [[1.5]], "mtp_ids": [], "rows": []}])"),
        with("\"cases\": []",
             R"("cases": [{"name": "p", "after": "", "sequences": [[1]], "mtp_ids": [], "rows": [1]}])")}) {
    EXPECT_NE(refusal({{"dsv3", text}}).find("manifest"), std::string::npos) << text;
  }
}

TEST(Store, AFileThatIsNotSafetensorsIsRefused) {
  const TempDir folder;
  write_bytes(folder / "g", "hello");
  EXPECT_THROW(golden::read_golden(folder / "g"), model::InputError);
}

}  // namespace
