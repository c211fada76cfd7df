#include "tools/synthetic/argument.hpp"

#include <fmt/ranges.h>

#include <charconv>
#include <limits>
#include <string_view>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace tools::synthetic {
namespace {

constexpr std::string_view kScheme = "synthetic:";
constexpr std::string_view kSeed = "seed=";

uint64_t parse_seed(std::string_view query, const std::string& argument) {
  uint64_t seed = 0;
  const std::string_view digits = query.starts_with(kSeed) ? query.substr(kSeed.size()) : std::string_view();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    model::throw_input_error("{}: expected ?seed=N with N from 0 to {} behind the name",
                             model::printable(argument),
                             std::numeric_limits<uint64_t>::max());
  }
  return seed;
}

}  // namespace

bool is_synthetic(const std::string& argument) {
  return argument.starts_with(kScheme);
}

std::unique_ptr<SyntheticWeights> open_synthetic(const std::string& argument) {
  CHECK(is_synthetic(argument));
  const std::string_view rest = std::string_view(argument).substr(kScheme.size());
  const size_t mark = rest.find('?');
  const Fixture* fixture = find_fixture(rest.substr(0, mark));
  if (fixture == nullptr) {
    std::vector<std::string_view> names;
    for (const Fixture& known : all_fixtures()) {
      names.push_back(known.name);
    }
    model::throw_input_error(
        "{}: no such fixture, expected one of {}", model::printable(argument), fmt::join(names, ", "));
  }
  const uint64_t seed = mark == std::string_view::npos ? 0 : parse_seed(rest.substr(mark + 1), argument);
  return std::make_unique<SyntheticWeights>(*fixture, seed);
}

}  // namespace tools::synthetic
