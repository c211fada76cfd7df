#include "tools/tensor_core.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "reference/tensor_core/fit.hpp"
#include "reference/tensor_core/recipe.hpp"
#include "reference/tensor_core/recipe_file.hpp"
#include "tools/cli.hpp"

namespace tools {
namespace {

namespace tc = reference::tensor_core;

std::string hex(uint32_t code, tc::Format out) {
  return fmt::format("{:0{}x}", code, tc::code_bits(out) / 4);
}

std::string rounding_key(tc::Rounding rounding) {
  return std::string(tc::rounding_name(rounding));
}

nlohmann::json step_json(const tc::Path& path) {
  return {{"path", path.name},
          {"L", path.step.num_products},
          {"F", path.step.align_bits},
          {"P", path.step.result_bits},
          {"align", rounding_key(path.step.align)},
          {"result", rounding_key(path.step.result)},
          {"c", tc::accumulator_text(path.chain, path.accumulator)}};
}

nlohmann::json agreement_json(const tc::Agreement& agreement, tc::Format out) {
  nlohmann::json json = step_json(*agreement.path);
  json["evidence"] = tc::evidence_text(agreement.path->evidence);
  json["mismatches"] = agreement.num_mismatches;
  json["first_mismatch"] = nullptr;
  if (agreement.first) {
    json["first_mismatch"] = {{"row", agreement.first->row_idx + 1},
                              {"got", hex(agreement.first->got, out)},
                              {"expected", hex(agreement.first->expected, out)}};
  }
  return json;
}

int check_recipe(const TensorCoreFlags& flags, const tc::VectorSet& set) {
  const tc::Recipe recipe = tc::recipe_of(flags.recipe);
  std::vector<tc::Agreement> agreements;
  for (const tc::Path* path : tc::paths_for(recipe, set.format)) {
    if (tc::writes(*path, set.out) && (flags.path.empty() || path->name == flags.path)) {
      agreements.push_back(tc::check_path(set, *path));
    }
  }
  if (agreements.empty()) {
    model::throw_input_error("recipe {} has no path {}for {} operands and {} results",
                             recipe.name,
                             flags.path.empty() ? "" : flags.path + " ",
                             flags.input,
                             tc::format_name(set.out));
  }
  // The file has to follow one path as a whole.
  const auto best = std::min_element(agreements.begin(), agreements.end(), [](const auto& x, const auto& y) {
    return x.num_mismatches < y.num_mismatches;
  });
  if (flags.json) {
    nlohmann::json json{{"csv", flags.csv},
                        {"recipe", recipe.name},
                        {"input", flags.input},
                        {"rows", set.rows.size()},
                        {"mismatches", best->num_mismatches},
                        {"path", best->path->name},
                        {"paths", nlohmann::json::array()}};
    for (const auto& agreement : agreements) {
      json["paths"].push_back(agreement_json(agreement, set.out));
    }
    fmt::print("{}\n", json.dump(2));
  } else {
    for (const auto& agreement : agreements) {
      fmt::print("{}: {} mismatches ({})\n",
                 tc::describe_path(*agreement.path),
                 agreement.num_mismatches,
                 tc::evidence_text(agreement.path->evidence));
      if (agreement.first) {
        fmt::print("  first: row {}, got {}, the file has {}\n",
                   agreement.first->row_idx + 1,
                   hex(agreement.first->got, set.out),
                   hex(agreement.first->expected, set.out));
      }
    }
    fmt::print("{} rows, {} mismatches\n", set.rows.size(), best->num_mismatches);
  }
  return best->num_mismatches == 0 ? kExitOk : kExitCheckFailed;
}

int fit_vectors(const TensorCoreFlags& flags, const tc::VectorSet& set) {
  const tc::Fit fit = tc::fit_step(set);
  if (flags.json) {
    nlohmann::json json{{"csv", flags.csv},
                        {"input", flags.input},
                        {"rows", set.rows.size()},
                        {"fits", nlohmann::json::array()},
                        {"cannot_tell", fit.unknown}};
    for (const auto& path : fit.paths) {
      json["fits"].push_back(step_json(path));
    }
    fmt::print("{}\n", json.dump(2));
  } else {
    for (const auto& path : fit.paths) {
      fmt::print("{}\n", tc::describe_path(path));
    }
    for (const auto& sentence : fit.unknown) {
      fmt::print("cannot tell  {}\n", sentence);
    }
    fmt::print("{} rows, {} rules explain all of them\n", set.rows.size(), fit.paths.size());
  }
  return fit.paths.empty() ? kExitCheckFailed : kExitOk;
}

}  // namespace

void add_tensor_core(CLI::App& app, TensorCoreFlags& flags) {
  app.footer(
      "\nExamples:\n"
      "  dsv3-verify tensor-core --csv h100.csv --recipe hopper --input e4m3\n"
      "  dsv3-verify tensor-core --csv mine.csv --recipe arithmetic.json --input e4m3 --json\n"
      "  dsv3-verify tensor-core --csv unknown.csv --input bf16 --fit\n"
      "Columns: a_hex,b_hex,c_fp32_hex,d_fp32_hex; a and b hold K codes in a row, k ascending.\n"
      "Exit codes: 0 every row agrees, 1 some do not, 2 bad usage or input.");
  app.add_option("--csv", flags.csv, "vectors, one a row")->required();
  app.add_option("--recipe", flags.recipe, "hopper, ampere, ada, blackwell, or an arithmetic file NAME.json");
  app.add_option("--input", flags.input, "operand format: bf16, fp16, tf32 (8 digits), e4m3, e5m2")->required();
  app.add_option("--path", flags.path, "only this instruction of the recipe (default: the one that agrees best)");
  app.add_flag("--fit", flags.fit, "find L, F, P and the roundings, and say what the rows cannot tell");
  app.add_flag("--json", flags.json, "machine-readable result");
}

int run_tensor_core(const TensorCoreFlags& flags) {
  if (flags.fit != flags.recipe.empty()) {
    model::throw_input_error("tensor-core: give either --recipe or --fit");
  }
  const tc::Format format = tc::parse_format(flags.input);
  if (format == tc::Format::kFp32) {
    model::throw_input_error("--input fp32: not an operand format of tensor cores");
  }
  const tc::VectorSet set = tc::read_vectors(flags.csv, format);
  return flags.fit ? fit_vectors(flags, set) : check_recipe(flags, set);
}

}  // namespace tools
