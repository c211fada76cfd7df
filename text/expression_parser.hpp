// Jinja's expressions, by their precedence.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/template_lexer.hpp"
#include "text/template_parser.hpp"

namespace text {

class ExpressionParser {
 public:
  // `words` ends with kEnd and outlives the parser. `origin` opens every message.
  ExpressionParser(std::span<const TemplateWord> words, std::string origin)
      : words_(words), origin_(std::move(origin)) {}

  // A whole expression. All of these throw InputError.
  Expression expression();

  std::string name();
  bool take(std::string_view symbol);  // whether it was there
  void expect(std::string_view symbol);
  void expect_name(std::string_view name);
  void expect_end();

 private:
  [[noreturn]] void refuse(std::string_view expected) const;
  [[nodiscard]] const TemplateWord& word() const { return words_[at_]; }
  bool take_name(std::string_view name);

  Expression any_of();
  Expression all_of();
  Expression negation();
  Expression comparison();
  Expression sum();
  Expression concatenation();
  Expression postfix();
  Expression primary();
  Expression text_literal();
  Expression named();
  Expression method(Expression object, std::string name);
  Expression test(Expression value);
  void arguments(Expression& call);

  std::span<const TemplateWord> words_;
  std::string origin_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace text
