// The manifest of a golden file as JSON text, and back.
#pragma once

#include <string>
#include <string_view>

#include "golden/store.hpp"

namespace golden {

// Raised by one when a field, a tensor name or a shape changes meaning; a new field alone does not raise it.
inline constexpr int64_t kFormatVersion = 1;

std::string manifest_text(const Manifest& manifest);
// Throws InputError that begins with `origin`: not a manifest, a version above kFormatVersion, a missing or mistyped field.
Manifest parse_manifest(std::string_view text, const std::string& origin);

}  // namespace golden
