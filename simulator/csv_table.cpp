#include "simulator/csv_table.hpp"

#include <algorithm>

// The reader's own thread would only cost start-up time.
#define CSV_IO_NO_THREAD
#include <csv.h>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace simulator {
namespace {

using Quotes = io::double_quote_escape<',', '"'>;
using Trim = io::trim_chars<' ', '\t'>;

// Cuts the line where it stands.
std::vector<std::string> split(char* line) {
  std::vector<std::string> cells;
  while (line != nullptr) {
    char* begin = line;
    char* end = begin + (Quotes::find_next_column_end(begin) - begin);
    line = *end == '\0' ? nullptr : end + 1;
    *end = '\0';
    Trim::trim(begin, end);
    Quotes::unescape(begin, end);
    cells.emplace_back(begin, end);
  }
  return cells;
}

void check_header(const CsvTable& table, int64_t line) {
  std::vector<std::string> sorted = table.columns;
  std::ranges::sort(sorted);
  if (sorted.front().empty()) {
    model::throw_input_error("{}:{}: a column without a name", table.path, line);
  }
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    model::throw_input_error("{}:{}: column {} is there twice", table.path, line, model::printable(*twice));
  }
}

}  // namespace

CsvTable read_csv(const std::filesystem::path& path) {
  CsvTable table{.path = path.string(), .columns = {}, .rows = {}};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    model::throw_input_error("{}: expected a CSV file there", table.path);
  }
  int64_t line_number = 0;
  try {
    io::LineReader reader(table.path);
    while (char* line = reader.next_line()) {
      line_number = static_cast<int64_t>(reader.get_file_line());
      if (*line == '#' || *line == '\0') {
        continue;
      }
      std::vector<std::string> cells = split(line);
      if (table.columns.empty()) {
        table.columns = std::move(cells);
        check_header(table, line_number);
      } else if (cells.size() != table.columns.size()) {
        model::throw_input_error(
            "{}:{}: {} fields, but the header has {}", table.path, line_number, cells.size(), table.columns.size());
      } else {
        table.rows.push_back({.line = line_number, .cells = std::move(cells)});
      }
    }
  } catch (const io::error::base&) {
    model::throw_input_error("{}:{}: a line that is too long, or a quote that is not closed", table.path, line_number);
  }
  if (table.columns.empty()) {
    model::throw_input_error("{}: no header line", table.path);
  }
  return table;
}

}  // namespace simulator
