#include "tools/infer/stop_strings.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"

namespace tools {
namespace {

// What is shown when the text comes in these pieces.
std::string shown(std::vector<std::string> strings, const std::vector<std::string>& pieces) {
  StopStrings stop(std::move(strings));
  std::string text;
  for (const std::string& piece : pieces) {
    text += stop.add(piece);
  }
  return text + (stop.found() ? "|" : stop.finish());
}

TEST(StopStrings, EndTheText_HoweverItIsCut) {
  const std::string text = "one two three two";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(shown({"two"}, {text.substr(0, cut), text.substr(cut)}), "one |") << cut;
  }
  std::vector<std::string> letters;
  for (const char letter : text) {
    letters.emplace_back(1, letter);
  }
  EXPECT_EQ(shown({"two"}, letters), "one |");
}

TEST(StopStrings, TheFirstOfSeveral_Ends) {
  EXPECT_EQ(shown({"three", "wo t"}, {"one two three"}), "one t|");
  EXPECT_EQ(shown({"tw", "two"}, {"one t", "wo"}), "one |");
}

TEST(StopStrings, WithoutAny_AllIsShown) {
  EXPECT_EQ(shown({}, {"one ", "two"}), "one two");
  EXPECT_EQ(shown({"xyz"}, {"one x", "y", "x"}), "one xyx");
}

// "aab" after "aa" may still come from the second letter on.
TEST(StopStrings, AnOverlappingBeginning_IsNotMissed) {
  EXPECT_EQ(shown({"aab"}, {"a", "a", "a", "b"}), "a|");
}

TEST(StopStrings, OnlyWhatMayOpenOne_IsHeldBack) {
  StopStrings stop({"\n\nUser:"});
  EXPECT_EQ(stop.add("Hello.\n"), "Hello.");
  EXPECT_EQ(stop.add("\nUs"), "");
  EXPECT_EQ(stop.add("e"), "");
  EXPECT_EQ(stop.add(" it"), "\n\nUse it");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, AnEmptyOne_IsRefused) {
  EXPECT_THROW(StopStrings({""}), model::InputError);
}

}  // namespace
}  // namespace tools
