#include "text/expression_parser.hpp"

#include <algorithm>
#include <initializer_list>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace text {
namespace {

constexpr int kMaxDepth = 100;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Expression make(ExpressionKind kind, std::string text, std::vector<Expression> operands) {
  return {kind, std::move(text), nullptr, std::move(operands), {}};
}

Expression literal(nlohmann::ordered_json value) {
  return {ExpressionKind::kLiteral, "", std::move(value), {}, {}};
}

}  // namespace

void ExpressionParser::refuse(std::string_view expected) const {
  model::throw_input_error("{}: {}: {}", origin_, model::printable(word().text), expected);
}

bool ExpressionParser::take(std::string_view symbol) {
  const bool is_there = word().kind == TemplateWordKind::kSymbol && word().text == symbol;
  at_ += is_there ? 1 : 0;
  return is_there;
}

bool ExpressionParser::take_name(std::string_view name) {
  const bool is_there = word().kind == TemplateWordKind::kName && word().text == name;
  at_ += is_there ? 1 : 0;
  return is_there;
}

void ExpressionParser::expect(std::string_view symbol) {
  if (!take(symbol)) {
    refuse(fmt::format("expected {}", symbol));
  }
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!take_name(name)) {
    refuse(fmt::format("expected {}", name));
  }
}

void ExpressionParser::expect_end() {
  if (word().kind != TemplateWordKind::kEnd) {
    refuse("expected the end of the tag");
  }
}

std::string ExpressionParser::name() {
  if (word().kind != TemplateWordKind::kName) {
    refuse("expected a name");
  }
  return words_[at_++].text;
}

Expression ExpressionParser::expression() {
  if (++depth_ > kMaxDepth) {
    refuse("nested too deep");
  }
  Expression value = any_of();
  if (take_name("if")) {
    Expression condition = any_of();
    expect_name("else");
    value = make(ExpressionKind::kConditional, "", {std::move(value), std::move(condition), expression()});
  }
  --depth_;
  return value;
}

Expression ExpressionParser::any_of() {
  Expression left = all_of();
  while (take_name("or")) {
    left = make(ExpressionKind::kOr, "", {std::move(left), all_of()});
  }
  return left;
}

Expression ExpressionParser::all_of() {
  Expression left = negation();
  while (take_name("and")) {
    left = make(ExpressionKind::kAnd, "", {std::move(left), negation()});
  }
  return left;
}

Expression ExpressionParser::negation() {
  bool is_negated = false;
  while (take_name("not")) {
    is_negated = !is_negated;
  }
  Expression value = comparison();
  return is_negated ? make(ExpressionKind::kNot, "", {std::move(value)}) : value;
}

Expression ExpressionParser::comparison() {
  Expression left = sum();
  const bool is_symbol =
      word().kind == TemplateWordKind::kSymbol && is_one_of(word().text, {"==", "!=", "<", "<=", ">", ">="});
  if (is_symbol) {
    const std::string symbol = words_[at_++].text;
    return make(ExpressionKind::kCompare, symbol, {std::move(left), sum()});
  }
  const bool is_negated = word().text == "not" && take_name("not");
  if (is_negated || (word().kind == TemplateWordKind::kName && word().text == "in")) {
    expect_name("in");
    Expression result = make(ExpressionKind::kCompare, "in", {std::move(left), sum()});
    return is_negated ? make(ExpressionKind::kNot, "", {std::move(result)}) : result;
  }
  return left;
}

Expression ExpressionParser::sum() {
  Expression left = concatenation();
  while (take("+")) {
    left = make(ExpressionKind::kAdd, "", {std::move(left), concatenation()});
  }
  return left;
}

Expression ExpressionParser::concatenation() {
  Expression left = postfix();
  while (take("~")) {
    left = make(ExpressionKind::kConcatenate, "", {std::move(left), postfix()});
  }
  return left;
}

Expression ExpressionParser::postfix() {
  Expression value = primary();
  while (true) {
    if (take(".")) {
      std::string member = name();
      if (take("(")) {
        value = method(std::move(value), std::move(member));
      } else {
        value = make(ExpressionKind::kItem, "", {std::move(value), literal(std::move(member))});
      }
    } else if (take("[")) {
      value = make(ExpressionKind::kItem, "", {std::move(value), expression()});
      expect("]");
    } else if (take("|")) {
      if (!is_one_of(word().text, {"tojson", "trim"})) {
        refuse("this filter is not supported");
      }
      value = make(ExpressionKind::kFilter, name(), {std::move(value)});
    } else if (take_name("is")) {
      value = test(std::move(value));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::test(Expression value) {
  const bool is_negated = take_name("not");
  if (!is_one_of(word().text, {"defined", "none", "string", "mapping"})) {
    refuse("this test is not supported");
  }
  Expression result = make(ExpressionKind::kTest, name(), {std::move(value)});
  return is_negated ? make(ExpressionKind::kNot, "", {std::move(result)}) : result;
}

Expression ExpressionParser::method(Expression object, std::string name) {
  if (!is_one_of(name, {"split", "strip", "startswith", "endswith"})) {
    refuse(name + " is not supported");
  }
  Expression call = make(ExpressionKind::kMethod, std::move(name), {std::move(object)});
  arguments(call);
  return call;
}

// The opening parenthesis is taken.
void ExpressionParser::arguments(Expression& call) {
  while (!take(")")) {
    if (!call.names.empty() || call.operands.size() > (call.kind == ExpressionKind::kMethod ? 1U : 0U)) {
      expect(",");
    }
    if (call.text == "namespace") {
      call.names.push_back(name());
      expect("=");
    }
    call.operands.push_back(expression());
  }
}

Expression ExpressionParser::primary() {
  switch (word().kind) {
    case TemplateWordKind::kText: return text_literal();
    case TemplateWordKind::kInteger: return literal(words_[at_++].integer);
    case TemplateWordKind::kName: return named();
    case TemplateWordKind::kSymbol:
      if (take("-")) {
        if (word().kind != TemplateWordKind::kInteger) {
          refuse("expected a number after -");
        }
        return literal(-words_[at_++].integer);
      }
      if (take("(")) {
        Expression value = expression();
        expect(")");
        return value;
      }
      break;
    case TemplateWordKind::kEnd: break;
  }
  refuse("expected a value");
}

// Strings side by side are one.
Expression ExpressionParser::text_literal() {
  std::string text;
  while (word().kind == TemplateWordKind::kText) {
    text += words_[at_++].text;
  }
  return literal(std::move(text));
}

Expression ExpressionParser::named() {
  if (is_one_of(word().text, {"if", "else", "and", "or", "in", "is", "not", "loop"})) {
    refuse("expected a value");
  }
  std::string text = name();
  if (is_one_of(text, {"true", "True", "false", "False"})) {
    return literal(text[0] == 't' || text[0] == 'T');
  }
  if (is_one_of(text, {"none", "None"})) {
    return literal(nullptr);
  }
  if (!take("(")) {
    return make(ExpressionKind::kName, std::move(text), {});
  }
  if (!is_one_of(text, {"namespace", "raise_exception"})) {
    refuse(text + " is not supported");
  }
  Expression call = make(ExpressionKind::kCall, std::move(text), {});
  arguments(call);
  return call;
}

}  // namespace text
