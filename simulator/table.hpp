// A result as rows and typed columns, written as text for a terminal, as CSV or as JSON from the same cells.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

namespace simulator {

// Empty, text, an exact integer, or a number.
using Cell = std::variant<std::monostate, std::string, int64_t, double>;

struct Column {
  std::string key;      // for CSV and JSON; ends in its unit
  std::string heading;  // for people
  std::string unit = {};
  double divisor = 1;       // text shows value / divisor ...
  int decimals = -1;        // ... with so many digits; -1: integers whole, numbers with 6 significant digits
  bool is_hidden = false;   // not in the text
  bool blank_zero = false;  // text shows 0 as a dash
};

struct Table {
  std::string name;  // CSV block and JSON key
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows = {};
  bool is_record = false;  // one row: text lists its fields one a line, JSON is an object

  // Checks the number of cells.
  void add(std::vector<Cell> row);
};

std::string table_text(const Table& table);
// Header line, then one line a row. Numbers read back to the same bits.
std::string table_csv(const Table& table);
nlohmann::ordered_json table_json(const Table& table);

}  // namespace simulator
