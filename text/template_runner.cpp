#include "text/template_runner.hpp"

#include "model/check.hpp"
#include "model/printable.hpp"
#include "text/template_values.hpp"

namespace text {
namespace {

using Value = nlohmann::ordered_json;

class Runner {
 public:
  Runner(TemplateVariables variables, const std::string& origin) : origin_(origin) {
    scopes_.push_back(std::move(variables));
  }

  std::string run(const std::vector<Statement>& statements) {
    execute(statements);
    return std::move(output_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    model::throw_input_error("{}: the chat template {}", origin_, what);
  }

  [[nodiscard]] static std::string describe(const Expression& expression, const Value& value) {
    const std::string name = source_name(expression);
    return name.empty() ? type_name(value) : fmt::format("{} ({})", name, type_name(value));
  }

  // The variable path that an expression spells; empty for other expressions.
  [[nodiscard]] static std::string source_name(const Expression& expression) {
    if (expression.kind == ExpressionKind::kName) {
      return expression.text;
    }
    const bool is_path = expression.kind == ExpressionKind::kItem &&
                         expression.operands[1].kind == ExpressionKind::kLiteral &&
                         expression.operands[1].literal.is_string();
    const std::string container = is_path ? source_name(expression.operands[0]) : "";
    return container.empty() ? ""
                             : container + "." + model::printable(expression.operands[1].literal.get<std::string>());
  }

  void execute(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements) {
      execute(statement);
    }
  }

  void execute(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kText: output_ += statement.text; return;
      case Statement::Kind::kOutput: output_ += printed(statement.conditions[0]); return;
      case Statement::Kind::kSet: set(statement); return;
      case Statement::Kind::kIf: choose(statement); return;
      case Statement::Kind::kFor: loop(statement); return;
    }
  }

  // As in Jinja, a variable belongs to the pass of the innermost loop; only attributes of a namespace reach out of it.
  void set(const Statement& statement) {
    Value value = evaluate(statement.conditions[0]);
    if (statement.attribute.empty()) {
      scopes_.back()[statement.text] = std::move(value);
      return;
    }
    Value* object = find(statement.text);
    if (object == nullptr || !object->is_object()) {
      fail(fmt::format("sets {}.{} without a namespace", statement.text, statement.attribute));
    }
    (*object)[statement.attribute] = std::move(value);
  }

  void choose(const Statement& statement) {
    for (size_t i = 0; i < statement.bodies.size(); ++i) {
      if (i == statement.conditions.size() || is_true(evaluate(statement.conditions[i]))) {
        execute(statement.bodies[i]);
        return;
      }
    }
  }

  void loop(const Statement& statement) {
    const Value list = evaluate(statement.conditions[0]);
    if (list.is_discarded()) {
      return;
    }
    if (!list.is_array()) {
      fail(fmt::format("loops over {}, expected a list", describe(statement.conditions[0], list)));
    }
    for (const Value& element : list) {
      scopes_.push_back({{statement.text, element}});
      execute(statement.bodies[0]);
      scopes_.pop_back();
    }
  }

  Value* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) {
        return &found->second;
      }
    }
    return nullptr;
  }

  // The value of an expression: a variable or a part of one in place, anything else in `storage`.
  const Value& resolve(const Expression& expression, Value& storage) {
    if (expression.kind == ExpressionKind::kName) {
      const Value* variable = find(expression.text);
      return variable != nullptr ? *variable : storage = undefined();
    }
    if (expression.kind != ExpressionKind::kItem) {
      return storage = evaluate(expression);
    }
    Value container_storage;
    const Value& container = resolve(expression.operands[0], container_storage);
    const Value key = evaluate(expression.operands[1]);
    if (container.is_discarded()) {
      fail(fmt::format("looks into {}", describe(expression.operands[0], container)));
    }
    const Value* item = find_item(container, key);
    if (item == nullptr) {
      return storage = undefined();
    }
    // What lies in a local storage has to be taken along.
    return &container == &container_storage ? storage = Value(*item) : *item;
  }

  Value evaluate(const Expression& expression) {
    const auto& operands = expression.operands;
    switch (expression.kind) {
      case ExpressionKind::kLiteral: return expression.literal;
      case ExpressionKind::kName:
      case ExpressionKind::kItem: {
        Value storage;
        return resolve(expression, storage);
      }
      case ExpressionKind::kCall: return call(expression);
      case ExpressionKind::kMethod: return method(expression);
      case ExpressionKind::kFilter: return filter(expression);
      case ExpressionKind::kTest: {
        Value storage;
        return passes_test(resolve(operands[0], storage), expression.text);
      }
      case ExpressionKind::kNot: return !is_true(evaluate(operands[0]));
      case ExpressionKind::kAnd: {
        Value left = evaluate(operands[0]);
        return is_true(left) ? evaluate(operands[1]) : left;
      }
      case ExpressionKind::kOr: {
        Value left = evaluate(operands[0]);
        return is_true(left) ? left : evaluate(operands[1]);
      }
      case ExpressionKind::kCompare: return compare(expression);
      case ExpressionKind::kAdd: return add(expression);
      case ExpressionKind::kConcatenate: return printed(operands[0]) + printed(operands[1]);
      case ExpressionKind::kConditional: return evaluate(is_true(evaluate(operands[1])) ? operands[0] : operands[2]);
    }
    return undefined();
  }

  std::string printed(const Expression& expression) {
    Value storage;
    const Value& value = resolve(expression, storage);
    const auto text = print(value);
    if (!text) {
      fail("prints " + describe(expression, value));
    }
    return *text;
  }

  Value call(const Expression& expression) {
    if (expression.text == "raise_exception") {
      const std::string message = expression.operands.empty() ? "" : printed(expression.operands[0]);
      fail("refuses these messages: " + model::printable(message));
    }
    Value result = Value::object();
    for (size_t i = 0; i < expression.operands.size(); ++i) {
      result[expression.names[i]] = evaluate(expression.operands[i]);
    }
    return result;
  }

  Value method(const Expression& expression) {
    std::vector<Value> arguments;
    for (const Expression& operand : expression.operands) {
      arguments.push_back(evaluate(operand));
    }
    auto result = call_method(expression.text, arguments);
    if (!result) {
      fail(fmt::format("calls {} of {} with arguments that do not fit",
                       expression.text,
                       describe(expression.operands[0], arguments[0])));
    }
    return *result;
  }

  Value filter(const Expression& expression) {
    Value storage;
    const Value& value = resolve(expression.operands[0], storage);
    const bool fits = expression.text == "tojson" ? !value.is_discarded() : value.is_string();
    if (!fits) {
      fail(fmt::format("puts {} through {}", describe(expression.operands[0], value), expression.text));
    }
    return expression.text == "tojson" ? python_json(value) : strip(value.get_ref<const std::string&>());
  }

  Value compare(const Expression& expression) {
    Value left_storage;
    Value right_storage;
    const Value& left = resolve(expression.operands[0], left_storage);
    const Value& right = resolve(expression.operands[1], right_storage);
    const auto result = compare_values(left, expression.text, right);
    if (!result) {
      fail(fmt::format("compares {} {} {}",
                       describe(expression.operands[0], left),
                       expression.text,
                       describe(expression.operands[1], right)));
    }
    return *result;
  }

  Value add(const Expression& expression) {
    Value left_storage;
    Value right_storage;
    const Value& left = resolve(expression.operands[0], left_storage);
    const Value& right = resolve(expression.operands[1], right_storage);
    if (left.is_string() && right.is_string()) {
      return left.get_ref<const std::string&>() + right.get_ref<const std::string&>();
    }
    if (left.is_number_integer() && right.is_number_integer()) {
      return left.get<int64_t>() + right.get<int64_t>();
    }
    fail(fmt::format("adds {} and {}, expected two strings",
                     describe(expression.operands[0], left),
                     describe(expression.operands[1], right)));
  }

  const std::string& origin_;
  std::vector<TemplateVariables> scopes_;
  std::string output_;
};

}  // namespace

std::string run_template(const std::vector<Statement>& statements,
                         TemplateVariables variables,
                         const std::string& origin) {
  return Runner(std::move(variables), origin).run(statements);
}

}  // namespace text
