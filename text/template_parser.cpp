#include "text/template_parser.hpp"

#include <algorithm>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "text/expression_parser.hpp"
#include "text/template_lexer.hpp"

namespace text {
namespace {

constexpr int kMaxDepth = 100;

class Parser {
 public:
  Parser(std::vector<TemplatePiece> pieces, const std::string& origin) : pieces_(std::move(pieces)), origin_(origin) {}

  std::vector<Statement> run() {
    auto statements = body({});
    if (at_ < pieces_.size()) {
      refuse(keyword() + " without its beginning");
    }
    return statements;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    const size_t at = at_ < pieces_.size() ? pieces_[at_].at : 0;
    model::throw_input_error("{}: byte {} of the template: {}", origin_, at, what);
  }

  // The first word of the statement here; empty when there is none.
  [[nodiscard]] std::string keyword() const {
    if (at_ == pieces_.size() || pieces_[at_].kind != TemplatePieceKind::kStatement) {
      return "";
    }
    const TemplateWord& word = pieces_[at_].words.front();
    return word.kind == TemplateWordKind::kName ? word.text : "a statement without a name";
  }

  // Statements up to one of `ends`, which stays; up to the end of the template when there are no `ends`.
  std::vector<Statement> body(const std::vector<std::string>& ends) {
    if (++depth_ > kMaxDepth) {
      refuse(fmt::format("nested deeper than {} levels", kMaxDepth));
    }
    std::vector<Statement> statements;
    while (at_ < pieces_.size()) {
      const std::string word = keyword();
      if (word == "elif" || word == "else" || word == "endif" || word == "endfor") {
        break;
      }
      statements.push_back(statement(word));
    }
    if (!ends.empty() && std::find(ends.begin(), ends.end(), keyword()) == ends.end()) {
      refuse("expected " + ends.back());
    }
    --depth_;
    return statements;
  }

  ExpressionParser words() const {
    return {pieces_[at_].words, fmt::format("{}: byte {} of the template", origin_, pieces_[at_].at)};
  }

  Statement statement(const std::string& word) {
    TemplatePiece& piece = pieces_[at_];
    if (piece.kind == TemplatePieceKind::kText) {
      ++at_;
      return {Statement::Kind::kText, std::move(piece.text), "", {}, {}};
    }
    if (piece.kind == TemplatePieceKind::kOutput) {
      auto parser = words();
      Statement output{Statement::Kind::kOutput, "", "", {parser.expression()}, {}};
      parser.expect_end();
      ++at_;
      return output;
    }
    if (word == "set") {
      return set();
    }
    if (word == "if") {
      return branches();
    }
    if (word == "for") {
      return loop();
    }
    refuse(model::printable(word) + " is not supported");
  }

  Statement set() {
    auto parser = words();
    parser.expect_name("set");
    Statement statement{Statement::Kind::kSet, parser.name(), "", {}, {}};
    if (parser.take(".")) {
      statement.attribute = parser.name();
    }
    parser.expect("=");
    statement.conditions.push_back(parser.expression());
    parser.expect_end();
    ++at_;
    return statement;
  }

  Statement branches() {
    Statement statement{Statement::Kind::kIf, "", "", {}, {}};
    for (std::string word = "if"; word != "endif"; word = keyword()) {
      if (statement.bodies.size() > statement.conditions.size()) {
        refuse("expected endif after else");
      }
      auto parser = words();
      parser.expect_name(word);
      if (word != "else") {
        statement.conditions.push_back(parser.expression());
      }
      parser.expect_end();
      ++at_;
      statement.bodies.push_back(body({"elif", "else", "endif"}));
    }
    close("endif");
    return statement;
  }

  Statement loop() {
    auto parser = words();
    parser.expect_name("for");
    Statement statement{Statement::Kind::kFor, parser.name(), "", {}, {}};
    parser.expect_name("in");
    statement.conditions.push_back(parser.expression());
    parser.expect_end();
    ++at_;
    statement.bodies.push_back(body({"endfor"}));
    close("endfor");
    return statement;
  }

  void close(const std::string& word) {
    auto parser = words();
    parser.expect_name(word);
    parser.expect_end();
    ++at_;
  }

  std::vector<TemplatePiece> pieces_;
  const std::string& origin_;
  size_t at_ = 0;
  int depth_ = 0;
};

bool names(const Expression& expression, std::string_view name) {
  return (expression.kind == ExpressionKind::kName && expression.text == name) ||
         std::ranges::any_of(expression.operands, [&](const Expression& operand) { return names(operand, name); });
}

}  // namespace

std::vector<Statement> parse_template(std::string_view source, const std::string& origin) {
  return Parser(read_template_pieces(source, origin), origin).run();
}

bool reads_variable(const std::vector<Statement>& statements, std::string_view name) {
  return std::ranges::any_of(statements, [&](const Statement& statement) {
    return std::ranges::any_of(statement.conditions, [&](const Expression& e) { return names(e, name); }) ||
           std::ranges::any_of(statement.bodies, [&](const auto& body) { return reads_variable(body, name); });
  });
}

}  // namespace text
