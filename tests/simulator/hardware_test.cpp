#include "simulator/hardware.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "tests/temp_dir.hpp"

namespace simulator {
namespace {

using nlohmann::json;

json figure(double value) {
  return {{"value", value}, {"source", "a data sheet"}};
}

json own_gpu() {
  return {{"title", "Own"},
          {"bf16_dense_tflops", figure(100)},
          {"memory_gb", figure(64)},
          {"memory_gb_per_s", figure(1000)},
          {"nvlink_gb_per_s", figure(100)},
          {"nvlink_domain_gpus", figure(4)},
          {"nic_gb_per_s", figure(10)}};
}

void expect_refused(const json& document, const std::string& part) {
  try {
    parse_hardware(document.dump(), "own", "own.json");
    ADD_FAILURE() << "accepted, expected: " << part;
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("own.json: "), 0U) << error.what();
  }
}

TEST(Hardware, BuiltInFiles_AreAllThereAndCited) {
  EXPECT_EQ(built_in_hardware_names(), "a100, b200, b300, gb200-nvl72, h100, h20, h200, h800");
  for (const char* name : {"a100", "b200", "b300", "gb200-nvl72", "h100", "h20", "h200", "h800"}) {
    const Hardware hardware = load_hardware(name);
    EXPECT_FALSE(hardware.title.empty());
    for (const Figure* figure : {&hardware.bf16_dense_tflops,
                                 &hardware.memory_gb,
                                 &hardware.memory_gb_per_s,
                                 &hardware.nvlink_gb_per_s,
                                 &hardware.nvlink_domain_gpus,
                                 &hardware.nic_gb_per_s}) {
      EXPECT_GT(figure->value, 0) << name;
      EXPECT_FALSE(figure->source.empty()) << name;
    }
  }
}

// Published: H800 is an H100 with 400 GB/s of NVLink both ways; NVL72 puts 72 GPUs in one domain; A100 has no FP8.
TEST(Hardware, BuiltInFiles_HaveThePublishedFigures) {
  EXPECT_EQ(load_hardware("h800").nvlink_gb_per_s.value, 200);
  EXPECT_EQ(load_hardware("h100").nvlink_gb_per_s.value, 450);
  EXPECT_EQ(load_hardware("h800").memory_gb_per_s.value, 3350);
  EXPECT_EQ(load_hardware("h200").memory_gb.value, 141);
  EXPECT_EQ(load_hardware("h20").fp8_dense_tflops->value, 296);
  EXPECT_EQ(load_hardware("gb200-nvl72").nvlink_domain_gpus.value, 72);
  EXPECT_EQ(load_hardware("gb200-nvl72").memory_gb_per_s.value, 8000);
  EXPECT_FALSE(load_hardware("a100").fp8_dense_tflops.has_value());
}

TEST(Hardware, OwnFile_IsReadByPath) {
  const TempDir directory;
  write_bytes(directory / "mine.json", own_gpu().dump());
  const Hardware hardware = load_hardware((directory / "mine.json").string());
  EXPECT_EQ(hardware.name, "mine");
  EXPECT_EQ(hardware.memory_gb_per_s.value, 1000);
  EXPECT_THROW(load_hardware((directory / "none.json").string()), model::InputError);
  EXPECT_THROW(load_hardware("h300"), model::InputError);
}

TEST(Hardware, FileThatLacksOrMistakesAFigure_IsRefusedByName) {
  const auto with = [](const char* key, const json& value) {
    json document = own_gpu();
    document[key] = value;
    return document;
  };
  json without = own_gpu();
  without.erase("memory_gb_per_s");
  expect_refused(without, "memory_gb_per_s (absent): expected {\"value\": number");
  expect_refused(with("memory_gb", 80), "memory_gb 80: expected an object");
  expect_refused(with("memory_gb", json{{"value", 80}}), "memory_gb.source (absent): expected where");
  expect_refused(with("memory_gb", figure(-80)), "memory_gb.value -80");
  expect_refused(with("nvlink_domain_gpus", figure(7.5)), "expected a whole number of GPUs");
  expect_refused(with("memory_tb", figure(1)), "unknown fields: memory_tb");
  expect_refused(json::array(), "expected a JSON object");
}

}  // namespace
}  // namespace simulator
