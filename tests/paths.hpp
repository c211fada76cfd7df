#pragma once

#include <filesystem>

// The checkout that the tests were built from.
std::filesystem::path source_dir();
