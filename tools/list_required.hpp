// dsv3-verify list-required: what an engine has to dump so that its values can be judged, in the names of a format.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace tools {

// Adds the argument FORMAT to the subcommand.
void add_list_required(CLI::App& command, std::string& format);

// One line an op: the foreign name, ours, the shape in words. Of several names for one op the one that is read first; parts of a
// fused tensor say which columns. Throws InputError for an unknown format.
std::string required_text(std::string_view format);

int run_list_required(const std::string& format);

}  // namespace tools
