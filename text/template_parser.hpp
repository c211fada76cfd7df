// The part of Jinja that DeepSeek's chat templates are written in, as a tree. What lies outside it is refused by name.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace text {

enum class ExpressionKind {
  kLiteral,
  kName,    // text
  kItem,    // operands: container, key: a[k], and a.k
  kCall,    // text is a function: namespace (names: its keywords) or raise_exception; operands: arguments
  kMethod,  // text of operands[0]; the rest are arguments
  kFilter,  // operands[0] | text
  kTest,    // operands[0] is text
  kNot,
  kAnd,
  kOr,
  kCompare,  // text: == != < <= > >= in
  kAdd,
  kConcatenate,  // ~
  kConditional,  // operands: value, condition, alternative
};

struct Expression {
  ExpressionKind kind;
  std::string text;
  nlohmann::ordered_json literal;
  std::vector<Expression> operands;
  std::vector<std::string> names;
};

struct Statement {
  enum class Kind { kText, kOutput, kSet, kIf, kFor } kind;
  std::string text;                            // kText; the variable of kSet and kFor
  std::string attribute;                       // kSet: of a namespace; else empty
  std::vector<Expression> conditions;          // kIf: one for each body, but for a last `else`; else the one value
  std::vector<std::vector<Statement>> bodies;  // kIf, kFor
};

// Throws InputError; `origin` opens its message.
std::vector<Statement> parse_template(std::string_view source, const std::string& origin);

// Whether a variable of this name is read anywhere.
bool reads_variable(const std::vector<Statement>& statements, std::string_view name);

}  // namespace text
