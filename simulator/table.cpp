#include "simulator/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/check.hpp"

namespace simulator {
namespace {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

// 1234567.5 -> 1,234,567.5
std::string with_separators(std::string_view digits) {
  const size_t begin = digits.starts_with('-') ? 1 : 0;
  const size_t end = std::min(digits.find('.'), digits.size());
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > begin && i < end && (end - i) % 3 == 0) {
      text.push_back(',');
    }
    text.push_back(digits[i]);
  }
  return text;
}

std::string cell_text(const Cell& cell, const Column& column) {
  if (column.blank_zero && (cell == Cell(int64_t{0}) || cell == Cell(0.0))) {
    return "-";
  }
  const auto scaled = [&](double value) {
    const int decimals = std::max(column.decimals, 0);
    return with_separators(fmt::format("{:.{}f}", value / column.divisor, decimals));
  };
  return std::visit(Overloaded{[](std::monostate) { return std::string("-"); },
                               [](const std::string& text) { return text; },
                               [&](int64_t value) {
                                 return column.decimals < 0 ? with_separators(std::to_string(value))
                                                            : scaled(static_cast<double>(value));
                               },
                               [&](double value) {
                                 return column.decimals < 0 ? fmt::format("{:.6g}", value / column.divisor)
                                                            : scaled(value);
                               }},
                    cell);
}

bool is_text_column(const Table& table, size_t column) {
  return std::ranges::any_of(table.rows,
                             [&](const auto& row) { return std::holds_alternative<std::string>(row[column]); });
}

std::string record_text(const Table& table) {
  size_t width = 0;
  for (const Column& column : table.columns) {
    width = std::max(width, column.is_hidden ? 0 : column.heading.size());
  }
  std::string text = table.title + "\n";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    if (column.is_hidden) {
      continue;
    }
    text += fmt::format("  {:<{}}  {}{}{}\n",
                        column.heading,
                        width,
                        cell_text(table.rows.front()[i], column),
                        column.unit.empty() ? "" : " ",
                        column.unit);
  }
  return text;
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) {
    return text;
  }
  std::string quoted;
  for (const char symbol : text) {
    quoted.append(symbol == '"' ? 2 : 1, symbol);
  }
  return fmt::format("\"{}\"", quoted);
}

std::string csv_field(const Cell& cell) {
  return std::visit(Overloaded{[](std::monostate) { return std::string(); },
                               [](const std::string& text) { return csv_text(text); },
                               [](const auto& number) { return fmt::format("{}", number); }},
                    cell);
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  CHECK_EQ(row.size(), columns.size());
  rows.push_back(std::move(row));
}

std::string table_text(const Table& table) {
  if (table.is_record) {
    return record_text(table);
  }
  std::vector<std::vector<std::string>> lines(2);
  for (const Column& column : table.columns) {
    lines[0].push_back(column.heading);
    lines[1].push_back(column.unit);
  }
  for (const std::vector<Cell>& row : table.rows) {
    lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      lines.back().push_back(cell_text(row[i], table.columns[i]));
    }
  }
  std::string text = table.title + "\n";
  if (std::ranges::all_of(lines[1], &std::string::empty)) {
    lines.erase(lines.begin() + 1);
  }
  for (const std::vector<std::string>& line : lines) {
    std::string shown;
    for (size_t i = 0; i < line.size(); ++i) {
      if (table.columns[i].is_hidden) {
        continue;
      }
      size_t width = 0;
      for (const std::vector<std::string>& other : lines) {
        width = std::max(width, other[i].size());
      }
      shown +=
          is_text_column(table, i) ? fmt::format("  {:<{}}", line[i], width) : fmt::format("  {:>{}}", line[i], width);
    }
    shown.erase(shown.find_last_not_of(' ') + 1);
    text += shown + "\n";
  }
  return text;
}

std::string table_csv(const Table& table) {
  std::vector<std::string> fields;
  for (const Column& column : table.columns) {
    fields.push_back(column.key);
  }
  std::string text = fmt::format("{}\n", fmt::join(fields, ","));
  for (const std::vector<Cell>& row : table.rows) {
    fields.clear();
    for (const Cell& cell : row) {
      fields.push_back(csv_field(cell));
    }
    text += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return text;
}

nlohmann::ordered_json table_json(const Table& table) {
  auto rows = nlohmann::ordered_json::array();
  for (const std::vector<Cell>& row : table.rows) {
    auto object = nlohmann::ordered_json::object();
    for (size_t i = 0; i < row.size(); ++i) {
      nlohmann::ordered_json& field = object[table.columns[i].key];
      std::visit(Overloaded{[](std::monostate) {}, [&](const auto& value) { field = value; }}, row[i]);
    }
    rows.push_back(std::move(object));
  }
  return table.is_record ? rows.front() : rows;
}

}  // namespace simulator
