// The text output of nccl-tests. Source: the header that its programs print
// ("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong").
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/timing_table.hpp"

namespace simulator {
namespace {

constexpr size_t kNumFields = 13;
constexpr size_t kOutOfPlaceTime = 5;
constexpr size_t kInPlaceTime = 9;

double number(const std::string& path, int64_t line, const char* column, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
    model::throw_input_error(
        "{}:{}: {} \"{}\", expected a number of 0 or more", path, line, column, model::printable(text));
  }
  return value;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) {
    result.push_back(word);
  }
  return result;
}

}  // namespace

TimingTable read_nccl_tests(const std::filesystem::path& path) {
  TimingTable table{.path = path.string(),
                    .format = "nccl-tests",
                    .kind = TimingKind::kCollective,
                    .label_names = {"dtype", "redop"},
                    .axis_names = {"num_gpus", "message_bytes"},
                    .time_names = {"out_of_place", "in_place"},
                    .rows = {}};
  std::error_code error;
  std::ifstream file(path);
  if (!std::filesystem::is_regular_file(path, error) || !file) {
    model::throw_input_error("{}: expected the output of nccl-tests there", table.path);
  }
  int64_t num_gpus = 0;
  bool has_units = false;
  int64_t line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    const std::vector<std::string> fields = words(line);
    if (fields.empty()) {
      continue;
    }
    if (fields.front().starts_with('#')) {
      num_gpus += fields.size() > 2 && fields[1] == "Rank" ? 1 : 0;
      has_units = has_units || line.find("(us)") != std::string::npos;
      continue;
    }
    if (fields.size() != kNumFields) {
      model::throw_input_error(
          "{}:{}: {} fields, expected the {} of nccl-tests", table.path, line_number, fields.size(), kNumFields);
    }
    table.rows.push_back({.line = line_number,
                          .labels = {fields[2], fields[3]},
                          .axes = {static_cast<double>(num_gpus), number(table.path, line_number, "size", fields[0])},
                          .times_us = {number(table.path, line_number, "time", fields[kOutOfPlaceTime]),
                                       number(table.path, line_number, "time", fields[kInPlaceTime])}});
  }
  if (table.rows.empty() || num_gpus == 0 || !has_units) {
    model::throw_input_error(
        "{}: expected \"# Rank\" lines, units \"(us)\" in the header and rows, as nccl-tests prints them", table.path);
  }
  return table;
}

}  // namespace simulator
