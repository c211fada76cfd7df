// A CSV file as text cells with their lines: one header line, rows of the same length, '#' lines are comments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace simulator {

struct CsvRow {
  int64_t line = 0;  // in the file, from 1
  std::vector<std::string> cells;
};

struct CsvTable {
  std::string path;
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;
};

// Quotes as usual ("" inside quotes is one). Throws InputError naming file and line: not there, no header, a column named twice or
// not at all, a row of another length, an unclosed quote.
CsvTable read_csv(const std::filesystem::path& path);

}  // namespace simulator
