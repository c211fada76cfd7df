#include "model/op_record.hpp"

#include <fmt/ranges.h>

// The reader needs no thread of its own.
#define CSV_IO_NO_THREAD
#include <csv.h>

#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <span>
#include <system_error>
#include <tuple>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "model/printable.hpp"

namespace model {
namespace {

constexpr size_t kNumColumns = 23;
constexpr std::array<const char*, kNumColumns> kColumns{
    "op",       "kind",        "layer",     "phase",       "rank",         "tokens",
    "batch",    "context_len", "dtype",     "flops",       "weight_bytes", "activation_bytes",
    "kv_bytes", "wire_bytes",  "time_us",   "time_us_p10", "time_us_p90",  "repetitions",
    "source",   "device",      "clock_mhz", "config_hash", "commit"};

constexpr std::array kSources{std::pair{RecordSource::kCuda, "cuda"},
                              std::pair{RecordSource::kEmulated, "emulated"},
                              std::pair{RecordSource::kReference, "reference"},
                              std::pair{RecordSource::kSimulated, "simulated"},
                              std::pair{RecordSource::kLimit, "limit"}};

using Reader = io::CSVReader<kNumColumns,
                             io::trim_chars<' ', '\t'>,
                             io::double_quote_escape<',', '"'>,
                             io::throw_on_overflow,
                             io::single_and_empty_line_comment<'#'>>;

// Turns the cells of one row into values, left to right.
class RowParser {
 public:
  RowParser(const std::string& path, unsigned line, std::span<char* const> cells)
      : path_(path), line_(line), cells_(cells) {}

  std::string text() { return next(); }

  int64_t integer(int64_t min) {
    const std::string_view cell = next();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (cell.empty() || error != std::errc() || end != cell.data() + cell.size() || value < min) {
      fail(fmt::format("an integer of at least {}", min));
    }
    return value;
  }

  double number() {
    const std::string_view cell = next();
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (cell.empty() || error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value) ||
        value < 0) {
      fail("a finite number of at least 0");
    }
    return value;
  }

  std::optional<double> optional_number() {
    if (*cells_[column_] == '\0') {
      ++column_;
      return std::nullopt;
    }
    return number();
  }

  RecordSource source() {
    const std::string_view cell = next();
    for (const auto& [source, name] : kSources) {
      if (cell == name) {
        return source;
      }
    }
    fail("cuda, emulated, reference, simulated or limit");
  }

 private:
  const char* next() { return cells_[column_++]; }

  // About the cell that next() gave last.
  [[noreturn]] void fail(const std::string& expected) const {
    throw_input_error("{}:{}: column {}: \"{}\", expected {}",
                      path_,
                      line_,
                      kColumns[column_ - 1],
                      printable(cells_[column_ - 1]),
                      expected);
  }

  const std::string& path_;
  unsigned line_;
  std::span<char* const> cells_;
  size_t column_ = 0;
};

// The initialisers run in the order of the members, which is the order of the columns.
OpRecord parse_row(RowParser row) {
  return {.op = row.text(),
          .kind = row.text(),
          .layer = row.integer(-1),
          .phase = row.text(),
          .rank = row.integer(0),
          .tokens = row.integer(0),
          .batch = row.integer(0),
          .context_len = row.integer(0),
          .dtype = row.text(),
          .flops = row.integer(0),
          .weight_bytes = row.integer(0),
          .activation_bytes = row.integer(0),
          .kv_bytes = row.integer(0),
          .wire_bytes = row.integer(0),
          .time_us = row.number(),
          .time_us_p10 = row.optional_number(),
          .time_us_p90 = row.optional_number(),
          .repetitions = row.integer(0),
          .source = row.source(),
          .device = row.text(),
          .clock_mhz = row.optional_number(),
          .config_hash = row.text(),
          .commit = row.text()};
}

std::vector<std::string> read_header_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!std::filesystem::is_regular_file(path) || !file) {
    throw_input_error("{}: cannot be read", path.string());
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) {
      continue;
    }
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    lines.push_back(line.substr(line.starts_with("# ") ? 2 : 1));
  }
  return lines;
}

std::string text_cell(const std::string& text) {
  CHECK(text.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
  const bool is_plain = text.find_first_of(",\"# \t") == std::string::npos;
  if (is_plain) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + '"';
}

std::string number_cell(const std::optional<double>& number) {
  CHECK(!number || (std::isfinite(*number) && *number >= 0));
  return number ? fmt::format("{}", *number) : "";
}

std::string row_text(const OpRecord& record) {
  const std::array<std::string, kNumColumns> cells{text_cell(record.op),
                                                   text_cell(record.kind),
                                                   fmt::format("{}", record.layer),
                                                   text_cell(record.phase),
                                                   fmt::format("{}", record.rank),
                                                   fmt::format("{}", record.tokens),
                                                   fmt::format("{}", record.batch),
                                                   fmt::format("{}", record.context_len),
                                                   text_cell(record.dtype),
                                                   fmt::format("{}", record.flops),
                                                   fmt::format("{}", record.weight_bytes),
                                                   fmt::format("{}", record.activation_bytes),
                                                   fmt::format("{}", record.kv_bytes),
                                                   fmt::format("{}", record.wire_bytes),
                                                   number_cell(record.time_us),
                                                   number_cell(record.time_us_p10),
                                                   number_cell(record.time_us_p90),
                                                   fmt::format("{}", record.repetitions),
                                                   std::string(record_source_name(record.source)),
                                                   text_cell(record.device),
                                                   number_cell(record.clock_mhz),
                                                   text_cell(record.config_hash),
                                                   text_cell(record.commit)};
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace

std::string_view record_source_name(RecordSource source) {
  for (const auto& [candidate, name] : kSources) {
    if (candidate == source) {
      return name;
    }
  }
  throw_check_error(__FILE__, __LINE__, "unknown record source");
}

OpRecordFile read_op_records(const std::filesystem::path& path) {
  OpRecordFile file{.header = read_header_lines(path), .records = {}};
  const std::string name = path.string();
  try {
    Reader reader(name);
    std::apply([&](auto... columns) { reader.read_header(io::ignore_no_column, columns...); }, kColumns);
    std::array<char*, kNumColumns> cells{};
    while (std::apply([&](auto&... cell) { return reader.read_row(cell...); }, cells)) {
      file.records.push_back(parse_row(RowParser(name, reader.get_file_line(), cells)));
    }
  } catch (const io::error::base& error) {
    throw_input_error("{}: {}; expected op records (docs/op-records.md)", name, error.what());
  }
  return file;
}

void write_op_records(const std::filesystem::path& path, const OpRecordFile& file) {
  std::string text;
  for (const std::string& line : file.header) {
    CHECK(line.find_first_of("\r\n") == std::string::npos);
    text += fmt::format("# {}\n", line);
  }
  text += fmt::format("{}\n", fmt::join(kColumns, ","));
  for (const OpRecord& record : file.records) {
    text += row_text(record);
  }
  AtomicFile out(path);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

}  // namespace model
