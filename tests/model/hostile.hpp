// What a refused input looks like: an InputError of one line.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "model/check.hpp"

// The message of the InputError that `action` throws; empty (and a failure) if it throws none.
template <typename Action>
std::string refusal_of(const Action& action) {
  try {
    action();
  } catch (const model::InputError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 1000u) << message;
    return message;
  }
  ADD_FAILURE() << "accepted";
  return "";
}

inline void expect_fragment(const std::string& message, const std::string& fragment) {
  EXPECT_NE(message.find(fragment), std::string::npos) << message << "\n expected: " << fragment;
}
