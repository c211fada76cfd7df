// dsv3-report: measured, simulated and limit time of every op in one page.
#include <fmt/core.h>

#include <span>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "report/report.hpp"
#include "tools/cli.hpp"
#include "version.hpp"

namespace tools {
namespace {

struct ReportFlags {
  report::Request request;
  std::string verify;
  std::string out;
  std::string csv;
  std::string trace;
};

void write_text(const std::string& path, const std::string& text) {
  model::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

int run_report(ReportFlags& flags) {
  if (flags.out.empty() && flags.csv.empty() && flags.trace.empty()) {
    model::throw_input_error("expected --out FILE.html, --csv FILE or --trace FILE");
  }
  if (!flags.verify.empty()) {
    flags.request.verify = flags.verify;
  }
  const report::Report report = report::make_report(flags.request);
  if (!flags.out.empty()) {
    const std::string page = report::page_html(report, DSV3_COMMIT);
    write_text(flags.out, page);
    constexpr size_t kLargePage = 3'000'000;
    if (page.size() > kLargePage) {
      fmt::print(stderr,
                 "dsv3-report: note: the page has {:.1f} MB; tables of --sim take most of such a page\n",
                 static_cast<double>(page.size()) / 1e6);
    }
  }
  if (!flags.csv.empty()) {
    write_text(flags.csv, report::joined_csv(report));
  }
  if (!flags.trace.empty()) {
    write_text(flags.trace, report::trace_json(report));
  }
  for (const report::Notice& notice : report.notices) {
    if (notice.is_warning) {
      fmt::print(stderr, "dsv3-report: note: {}\n", notice.text);
    }
  }
  fmt::print("{}", report::summary_text(report));
  return kExitOk;
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  CLI::App app("Joins op records, simulations and a verdict by op, and writes them as one self-contained page.",
               "dsv3-report");
  tools::describe(app,
                  "Examples:\n"
                  "  dsv3-sim explain --preset h200-tp8 --records v3.csv\n"
                  "  dsv3-report --records v3.csv --out report.html\n"
                  "  dsv3-report --records run.csv v3.csv --verify verdict.json --sim estimate.json --baseline old.csv "
                  "--out report.html --csv joined.csv --trace trace.json\n"
                  "Exit codes: 0 ok, 2 bad usage or input.");
  tools::ReportFlags flags;
  auto& request = flags.request;
  app.add_option("--records", request.records, "op records (docs/op-records.md), one or more files")->required();
  app.add_option(
      "--sim", request.sim, "what dsv3-sim prints with --json: estimate, search, skew, alltoall; one or more files");
  app.add_option("--verify", flags.verify, "what dsv3-verify prints with --json");
  app.add_option("--gpu", request.gpu, "whose roofline is drawn for runs on a CPU or in the emulation")
      ->capture_default_str();
  app.add_option("--baseline", request.baseline, "op records of an older run to compare with, one or more files");
  app.add_option("--out", flags.out, "the page");
  app.add_option("--csv", flags.csv, "the joined rows");
  app.add_option("--trace", flags.trace, "Chrome trace events, for Perfetto or chrome://tracing");
  return tools::run_main(app, argc, argv, [&] { return tools::run_report(flags); });
}
