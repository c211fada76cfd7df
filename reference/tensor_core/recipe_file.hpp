// Arithmetic that a user states in a JSON file: another accelerator's products as a recipe of their own. Format: docs/arithmetic.md.
#pragma once

#include <string>
#include <string_view>

#include "reference/tensor_core/recipe.hpp"

namespace reference::tensor_core {

// `origin` opens every message. Throws InputError.
Recipe parse_arithmetic(std::string_view text, const std::string& origin);
Recipe read_arithmetic(const std::string& path);
// The text of such a file, held against a limit of length but not parsed.
std::string read_arithmetic_text(const std::string& path);

// A recipe by name, or read from a file if the text ends in ".json". Throws InputError.
Recipe recipe_of(const std::string& name_or_file);

}  // namespace reference::tensor_core
