// The fields of a JSON object, each checked for type and range as it is read, with one-line messages.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace model {

// Reads the fields of one object and remembers which keys somebody asked for. null counts as absent, except that a required
// field may be neither. Messages read "<origin>: <prefix><key> ...".
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string origin, std::string prefix);

  // Largest integer that any field may hold.
  static constexpr int64_t kMaxInteger = (int64_t{1} << 31) - 1;

  [[nodiscard]] bool has(const std::string& key);  // there and not null
  [[nodiscard]] bool contains(const std::string& key) const { return object_.contains(key); }
  int64_t integer(const std::string& key, int64_t min, int64_t max = kMaxInteger);
  int64_t integer_or(const std::string& key, int64_t fallback, int64_t min, int64_t max = kMaxInteger);
  // Finite, and above zero as an FP32 number, because that is how the forward pass uses it.
  double positive_number(const std::string& key);
  double positive_number_or(const std::string& key, double fallback);
  double non_negative_number_or(const std::string& key, double fallback);
  bool boolean_or(const std::string& key, bool fallback);
  std::string text_or(const std::string& key, const std::string& fallback);
  // One integer or a list of them; empty when absent.
  std::vector<int64_t> integers(const std::string& key, int64_t min, int64_t max = kMaxInteger);
  // Empty when absent or null. The prefix of its messages is "<prefix><key>.".
  std::optional<JsonFields> object(const std::string& key);
  // An array of objects; empty when absent. The prefix of their messages is "<prefix><key>[i].".
  std::vector<JsonFields> objects(const std::string& key);

  // "<origin>: <prefix><key>", for messages about what is inside a field.
  [[nodiscard]] std::string name(const std::string& key) const { return origin_ + ": " + prefix_ + key; }
  // Refuses the field as it stands: "<origin>: <prefix><key> <value>: <expected>".
  [[noreturn]] void refuse(const std::string& key, std::string_view expected) const;
  // For what several fields say together: "<origin>: <message>".
  [[noreturn]] void fail(std::string_view message) const;
  // Marks keys as known without looking at them.
  void ignore(std::initializer_list<const char*> keys);
  // Keys that were neither read nor ignored, with the prefix.
  [[nodiscard]] std::vector<std::string> unread_keys() const;

 private:
  const nlohmann::json& required(const std::string& key);
  int64_t checked_integer(const nlohmann::json& value, const std::string& key, int64_t min, int64_t max) const;
  double number(const std::string& key);

  const nlohmann::json& object_;
  std::string origin_;
  std::string prefix_;
  std::set<std::string> read_;
};

}  // namespace model
