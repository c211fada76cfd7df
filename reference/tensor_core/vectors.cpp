#include "reference/tensor_core/vectors.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "model/check.hpp"

namespace reference::tensor_core {
namespace {

std::vector<std::string> split_cells(std::string_view line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      cells.back().push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
  }
  return cells;
}

// Positions of a, b, c and d.
std::array<size_t, 4> find_columns(const std::vector<std::string>& header, const std::string& path) {
  std::array<size_t, 4> columns{};
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string name(1, "abcd"[i]);
    const auto is_it = [&](const std::string& cell) { return cell == name || cell.starts_with(name + "_"); };
    const auto found = std::find_if(header.begin(), header.end(), is_it);
    if (found == header.end() || std::count_if(header.begin(), header.end(), is_it) != 1) {
      model::throw_input_error(
          "{}: line 1: expected one column for {}, as in a_hex,b_hex,c_fp32_hex,d_fp32_hex", path, name);
    }
    columns[i] = static_cast<size_t>(found - header.begin());
  }
  return columns;
}

// The codes in a cell, `num_digits` hexadecimal digits each; empty when the cell is anything else.
std::vector<uint32_t> codes_of(std::string_view cell, size_t num_digits) {
  if (cell.starts_with("0x")) {
    cell.remove_prefix(2);
  }
  if (cell.empty() || cell.size() % num_digits != 0 ||
      cell.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return {};
  }
  std::vector<uint32_t> codes;
  for (size_t begin = 0; begin < cell.size(); begin += num_digits) {
    codes.push_back(static_cast<uint32_t>(std::stoul(std::string(cell.substr(begin, num_digits)), nullptr, 16)));
  }
  return codes;
}

std::vector<uint32_t> operands_of(const std::string& cell, Format format, const std::string& place) {
  auto codes = codes_of(cell, static_cast<size_t>(code_bits(format)) / 4);
  if (codes.empty()) {
    model::throw_input_error("{}: expected {} operands of {} hexadecimal digits each, got '{:.40}'",
                             place,
                             format_name(format),
                             code_bits(format) / 4,
                             cell);
  }
  return codes;
}

uint32_t result_of(const std::string& cell, Format out, const std::string& place) {
  const auto codes = codes_of(cell, static_cast<size_t>(code_bits(out)) / 4);
  if (codes.size() != 1) {
    model::throw_input_error("{}: expected one {} number of {} hexadecimal digits, got '{:.40}'",
                             place,
                             format_name(out),
                             code_bits(out) / 4,
                             cell);
  }
  return codes[0];
}

// 4 digits (with or without 0x) are an FP16 number.
Format result_format(const std::string& cell) {
  return cell.size() - (cell.starts_with("0x") ? 2 : 0) == 4 ? Format::kFp16 : Format::kFp32;
}

void read_rows(std::istream& file, const std::string& path, VectorSet& set) {
  std::string line;
  if (!std::getline(file, line)) {
    model::throw_input_error("{}: empty", path);
  }
  std::string_view first(line);
  if (first.starts_with("\xEF\xBB\xBF")) {
    first.remove_prefix(3);
  }
  const auto header = split_cells(first);
  const auto columns = find_columns(header, path);
  for (int64_t line_num = 2; std::getline(file, line); ++line_num) {
    const auto cells = split_cells(line);
    if (cells.size() == 1 && cells[0].empty()) {
      continue;
    }
    const std::string place = fmt::format("{}: line {}", path, line_num);
    if (cells.size() != header.size()) {
      model::throw_input_error("{}: {} cells under a header of {}", place, cells.size(), header.size());
    }
    if (set.rows.empty()) {
      set.out = result_format(cells[columns[3]]);
    }
    Vector row{.a = operands_of(cells[columns[0]], set.format, place + ", column a"),
               .b = operands_of(cells[columns[1]], set.format, place + ", column b"),
               .c = result_of(cells[columns[2]], set.out, place + ", column c"),
               .d = result_of(cells[columns[3]], set.out, place + ", column d")};
    if (row.a.size() != row.b.size()) {
      model::throw_input_error("{}: {} operands in a, {} in b", place, row.a.size(), row.b.size());
    }
    set.rows.push_back(std::move(row));
  }
  if (set.rows.empty()) {
    model::throw_input_error("{}: no rows under the header", path);
  }
}

}  // namespace

VectorSet read_vectors(const std::string& path, Format format) {
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path)) {
    model::throw_input_error("{}: cannot be opened", path);
  }
  VectorSet set{.format = format, .rows = {}};
  read_rows(file, path, set);
  return set;
}

Agreement check_path(const VectorSet& set, const Path& path) {
  Agreement agreement{.path = &path, .first = {}};
  for (size_t i = 0; i < set.rows.size(); ++i) {
    const Vector& row = set.rows[i];
    const uint32_t got = path_dot(path, set.format, row.a, row.b, row.c, set.out);
    if (got != row.d) {
      ++agreement.num_mismatches;
      agreement.first = agreement.first.value_or(Mismatch{i, got, row.d});
    }
  }
  return agreement;
}

bool agrees(const VectorSet& set, const Path& path) {
  return std::all_of(set.rows.begin(), set.rows.end(), [&](const Vector& row) {
    return path_dot(path, set.format, row.a, row.b, row.c, set.out) == row.d;
  });
}

}  // namespace reference::tensor_core
