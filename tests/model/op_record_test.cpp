#include "model/op_record.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "model/check.hpp"
#include "tests/model/hostile.hpp"
#include "tests/temp_dir.hpp"

namespace model {
namespace {

const std::string kColumnLine =
    "op,kind,layer,phase,rank,tokens,batch,context_len,dtype,flops,weight_bytes,activation_bytes,kv_bytes,wire_bytes,"
    "time_us,"
    "time_us_p10,time_us_p90,repetitions,source,device,clock_mhz,config_hash,commit\n";
const std::string kRow =
    "layer.3.attn.q_a,linear,3,decode,2,128,64,4096,fp8,2818572288,11010048,1835008,7,9,11.25,10.5,13.75,50,cuda,H200,"
    "1980,abcd,"
    "299ad6c\n";

OpRecordFile parse(const std::string& text) {
  const TempDir directory;
  write_bytes(directory / "ops.csv", text);
  return read_op_records(directory / "ops.csv");
}

// The message after the path.
std::string refusal(const std::string& text) {
  const TempDir directory;
  const std::string path = (directory / "ops.csv").string();
  write_bytes(path, text);
  const std::string message = refusal_of([&] { read_op_records(path); });
  EXPECT_EQ(message.find(path + ":"), 0u) << message;
  return message.substr(std::min(message.size(), path.size()));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(OpRecord, EveryColumnIsRead) {
  const OpRecordFile file = parse("# tool: dsv3-bench\n#seed 3\n" + kColumnLine + kRow);
  EXPECT_EQ(file.header, (std::vector<std::string>{"tool: dsv3-bench", "seed 3"}));
  const OpRecord expected{.op = "layer.3.attn.q_a",
                          .kind = "linear",
                          .layer = 3,
                          .phase = "decode",
                          .rank = 2,
                          .tokens = 128,
                          .batch = 64,
                          .context_len = 4096,
                          .dtype = "fp8",
                          .flops = 2818572288,
                          .weight_bytes = 11010048,
                          .activation_bytes = 1835008,
                          .kv_bytes = 7,
                          .wire_bytes = 9,
                          .time_us = 11.25,
                          .time_us_p10 = 10.5,
                          .time_us_p90 = 13.75,
                          .repetitions = 50,
                          .source = RecordSource::kCuda,
                          .device = "H200",
                          .clock_mhz = 1980,
                          .config_hash = "abcd",
                          .commit = "299ad6c"};
  EXPECT_EQ(file.records, std::vector<OpRecord>{expected});
}

TEST(OpRecord, WriterWritesTheColumnsInOrder) {
  const TempDir directory;
  write_op_records(directory / "ops.csv", parse("# one\n" + kColumnLine + kRow));
  EXPECT_EQ(read_bytes(directory / "ops.csv"), "# one\n" + kColumnLine + kRow);
}

TEST(OpRecord, ColumnsInAnotherOrder_BlankLinesAndCrLf_AreRead) {
  std::string text = replaced(kColumnLine, "op,kind", "kind,op") + "\n" +
                     replaced(kRow, "layer.3.attn.q_a,linear", "linear, layer.3.attn.q_a");
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 2)) {
    text.insert(at, "\r");
  }
  EXPECT_EQ(parse(text).records, parse(kColumnLine + kRow).records);
}

TEST(OpRecord, FileWithoutRows_IsEmpty) {
  EXPECT_EQ(parse("# only a header\n" + kColumnLine), (OpRecordFile{.header = {"only a header"}, .records = {}}));
}

// Shortest decimal that reads back to the same double; texts with separators, quotes and comment signs.
TEST(OpRecord, AwkwardValues_SurviveARoundTrip) {
  OpRecord record;
  record.op = "#1, \"quoted\" op";
  record.kind = "\"";
  record.phase = " padded ";
  record.device = "NVIDIA H200, 141 GB";
  record.flops = std::numeric_limits<int64_t>::max();
  record.time_us = 0.1 + 0.2;
  record.time_us_p10 = std::numeric_limits<double>::denorm_min();
  record.time_us_p90 = std::numeric_limits<double>::max();
  record.source = RecordSource::kLimit;
  const OpRecordFile file{.header = {"a, b", "", "c = \"d\""}, .records = {record, OpRecord{}}};
  const TempDir directory;
  write_op_records(directory / "ops.csv", file);
  EXPECT_EQ(read_op_records(directory / "ops.csv"), file);
}

TEST(OpRecord, EverySourceHasAName) {
  for (const char* name : {"cuda", "emulated", "reference", "simulated", "limit"}) {
    EXPECT_EQ(record_source_name(parse(kColumnLine + replaced(kRow, "cuda", name)).records.at(0).source), name);
  }
}

struct Refusal {
  std::string text;
  std::string expected;
};

TEST(OpRecord, WrongFiles_AreRefusedWithLineAndColumn) {
  const std::string file = kColumnLine + kRow;
  const Refusal rows[] = {
      {"", "Header missing"},
      {"# only\n", "Header missing"},
      {replaced(file, "wire_bytes,", ""), "Missing column \"wire_bytes\""},
      {replaced(file, "wire_bytes,", "wire,"), "Extra column \"wire\""},
      {replaced(file, "kind,", "kind,kind,"), "Duplicated column \"kind\""},
      {replaced(file, ",299ad6c", ""), "Too few columns in line 2"},
      {replaced(file, "299ad6c", "299ad6c,"), "Too many columns in line 2"},
      {replaced(file, "H200", "\"H200"), "not closed in line 2"},
      {replaced(file, ",128,", ",-128,"), ":2: column tokens: \"-128\", expected an integer of at least 0"},
      {replaced(file, ",128,", ",128.5,"), ":2: column tokens: \"128.5\", expected an integer of at least 0"},
      {replaced(file, ",128,", ",,"), ":2: column tokens: \"\", expected an integer of at least 0"},
      {replaced(file, ",128,", ",9223372036854775808,"),
       ":2: column tokens: \"9223372036854775808\", expected an integer"},
      {replaced(file, ",3,", ",-2,"), ":2: column layer: \"-2\", expected an integer of at least -1"},
      {replaced(file, "11.25", "nan"), ":2: column time_us: \"nan\", expected a finite number of at least 0"},
      {replaced(file, "11.25", "inf"), ":2: column time_us: \"inf\", expected a finite number of at least 0"},
      {replaced(file, "11.25", "-1"), ":2: column time_us: \"-1\", expected a finite number of at least 0"},
      {replaced(file, "11.25", "11,25"), "Too many columns in line 2"},
      {replaced(file, "11.25", "11.25us"), ":2: column time_us: \"11.25us\", expected a finite number of at least 0"},
      {replaced(file, "11.25", ""), ":2: column time_us: \"\", expected a finite number of at least 0"},
      {replaced(file, "1980", "fast"), ":2: column clock_mhz: \"fast\", expected a finite number of at least 0"},
      {replaced(file, "cuda", "CUDA"),
       ":2: column source: \"CUDA\", expected cuda, emulated, reference, simulated or limit"},
      {"# a\n" + file + replaced(kRow, "cuda", "gpu"), ":4: column source: \"gpu\""},
  };
  for (const Refusal& row : rows) {
    const std::string message = refusal(row.text);
    EXPECT_NE(message.find(row.expected), std::string::npos) << message << " lacks " << row.expected;
  }
}

TEST(OpRecord, UnmeasuredSpreadAndClock_AreEmptyCells) {
  const OpRecord record = parse(kColumnLine + replaced(replaced(kRow, "10.5,13.75", ","), "1980", "")).records.at(0);
  EXPECT_EQ(record.time_us_p10, std::nullopt);
  EXPECT_EQ(record.time_us_p90, std::nullopt);
  EXPECT_EQ(record.clock_mhz, std::nullopt);
}

TEST(OpRecord, MissingFileOrDirectory_IsRefused) {
  const TempDir directory;
  EXPECT_EQ(refusal_of([&] { read_op_records(directory / "none.csv"); }),
            (directory / "none.csv").string() + ": cannot be read");
  EXPECT_EQ(refusal_of([&] { read_op_records(directory.path()); }), directory.path().string() + ": cannot be read");
}

TEST(OpRecord, LineBreakInAText_IsAProgrammersError) {
  const TempDir directory;
  OpRecord record;
  record.device = "two\nlines";
  EXPECT_THROW(write_op_records(directory / "ops.csv", {.header = {}, .records = {record}}), CheckError);
}

}  // namespace
}  // namespace model
