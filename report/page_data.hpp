// The numbers of a report as the page's script reads them.
#pragma once

#include <nlohmann/json.hpp>

#include "report/report.hpp"

namespace report {

// Times in us, counts exact, texts from the inputs as they are (the page writes them as text, never as markup).
nlohmann::ordered_json page_data(const Report& report);

}  // namespace report
