// The page: template, style and scripts of report/page/, with the data between them.
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "report/page_data.hpp"
#include "report/page_files.hpp"
#include "report/report.hpp"

namespace report {
namespace {

// Inside a script element nothing may look like markup.
std::string script_text(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

void replace_once(std::string& text, std::string_view mark, const std::string& with) {
  const size_t place = text.find(mark);
  CHECK(place != std::string::npos);
  text.replace(place, mark.size(), with);
}

}  // namespace

std::string page_html(const Report& report, const std::string& commit) {
  nlohmann::ordered_json data = page_data(report);
  data["commit"] = commit;
  std::string html(page_file("template.html"));
  replace_once(html, "/*STYLE*/", std::string(page_file("style.css")));
  std::string scripts;
  for (const char* name :
       {"text.js", "table.js", "charts.js", "summary.js", "ops.js", "deployment.js", "verdicts.js", "main.js"}) {
    scripts += page_file(name);
  }
  // Texts from files may hold what is no UTF-8: replaced, since a page has to open.
  const std::string json = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  replace_once(html, "/*SCRIPT*/", scripts);
  replace_once(html, "/*DATA*/", script_text(json));
  return html;
}

}  // namespace report
