// The files of report/page/, compiled in.
#pragma once

#include <string_view>

namespace report {

// "template.html", "style.css", ...
std::string_view page_file(std::string_view name);

}  // namespace report
