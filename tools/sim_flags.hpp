// Flags that the commands of dsv3-sim share, and how they print.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/layout.hpp"
#include "simulator/table.hpp"

namespace tools {

struct OutputFlags {
  std::vector<std::string> tables;
  bool json = false;
  bool csv = false;
};

void add_output(CLI::App& app, OutputFlags& output);
// Text, JSON or CSV, of all tables or of those asked for. CSV of several tables: blocks under a line "# <table>", a blank line
// between them. Throws InputError for a table that is not there.
void print_tables(std::vector<simulator::Table> tables, const OutputFlags& output);

// The same for what `validate` says. In JSON the fields of the summary, a record, also stand at the top: other programs read them there.
void print_validation(std::vector<simulator::Table> tables, const OutputFlags& output);

struct LayoutFlags {
  std::string shorthand;
  simulator::LayoutRequest request;

  // Throws InputError.
  [[nodiscard]] model::ParallelLayout layout() const;
};

// Our names, and those of vLLM, SGLang and aiconfigurator.
void add_layout(CLI::App& app, LayoutFlags& flags);

// Counts separated by commas or white space, in the argument itself or in the file it names. Throws InputError.
std::vector<int64_t> parse_counts(const std::string& argument);

}  // namespace tools
