// Runs a parsed Jinja template. Values are JSON; what Jinja calls undefined is a discarded value.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/template_parser.hpp"

namespace text {

using TemplateVariables = std::map<std::string, nlohmann::ordered_json>;

// The text that the template makes of the variables. Throws InputError, opened by `origin`, where Jinja in Python would raise: a
// string plus something else, an item of something undefined.
std::string run_template(const std::vector<Statement>& statements,
                         TemplateVariables variables,
                         const std::string& origin);

}  // namespace text
