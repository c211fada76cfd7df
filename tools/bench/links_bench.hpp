// dsv3-bench links: how long ranks take to exchange, over each way of connecting them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tools {

// Adds the command and returns what runs it; the returned function holds its flags.
std::function<int()> add_links_bench(CLI::App& app);

}  // namespace tools
