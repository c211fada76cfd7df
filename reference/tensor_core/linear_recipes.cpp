#include "reference/tensor_core/linear_recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/check.hpp"

namespace reference::tensor_core {
namespace {

// A unit for E4M3FNUZ stands for one of E4M3FN: the same code is half the number there, subnormal ones included, so with codes in
// [-224, 224] and scales twice as large every step is the same but for a power of two.
bool takes(const Path& path, Format format) {
  return std::ranges::any_of(path.formats, [=](Format of_unit) {
    return of_unit == format || (format == Format::kE4m3 && of_unit == Format::kE4m3Fnuz);
  });
}

// The recipe with its FP8 path of mma.sync before the others.
Recipe with_small_tiles(Recipe recipe) {
  std::stable_partition(
      recipe.paths.begin(), recipe.paths.end(), [](const Path& path) { return path.chain == Chain::kUnpackedPairs; });
  return recipe;
}

std::vector<std::shared_ptr<const Recipe>> make_list() {
  std::vector<std::shared_ptr<const Recipe>> list;
  const auto add = [&](Recipe recipe, const std::string& suffix, Promotion::Form form) {
    recipe.name += suffix;
    recipe.promotion.form = form;
    list.push_back(std::make_shared<const Recipe>(std::move(recipe)));
  };
  for (const char* name : {"hopper", "ampere", "ada", "blackwell"}) {
    const Recipe& recipe = find_recipe(name);
    add(recipe, "", Promotion::Form::kFusedScalesFirst);
    if (recipe.name == "hopper") {  // blackwell's mma.sync takes the same steps
      const Recipe small = with_small_tiles(recipe);
      add(small, "-mma", Promotion::Form::kFusedScalesFirst);
      add(recipe, "-triton", Promotion::Form::kSeparateActivationFirst);
      add(recipe, "-triton-fused", Promotion::Form::kFusedActivationFirst);
      add(small, "-mma-triton", Promotion::Form::kSeparateActivationFirst);
      add(small, "-mma-triton-fused", Promotion::Form::kFusedActivationFirst);
    }
  }
  return list;
}

std::string_view form_text(Promotion::Form form) {
  switch (form) {
    case Promotion::Form::kFusedScalesFirst: return "fma(sA * sB, t, f)";
    case Promotion::Form::kSeparateScalesFirst: return "f + (sA * sB) * t";
    case Promotion::Form::kFusedActivationFirst: return "fma(t * sA, sB, f)";
    case Promotion::Form::kSeparateActivationFirst: return "f + (t * sA) * sB";
  }
  return "";
}

}  // namespace

const std::vector<std::shared_ptr<const Recipe>>& linear_recipes() {
  static const auto list = make_list();
  return list;
}

std::shared_ptr<const Recipe> find_linear_recipe(std::string_view name) {
  const auto found = std::ranges::find_if(linear_recipes(), [&](const auto& recipe) { return recipe->name == name; });
  return found == linear_recipes().end() ? nullptr : *found;
}

bool has_unit(const Recipe& recipe, Format format) {
  return std::ranges::any_of(recipe.paths, [&](const Path& path) { return takes(path, format); });
}

const Path& linear_path(const Recipe& recipe, Format format) {
  const auto found = std::ranges::find_if(recipe.paths, [&](const Path& path) { return takes(path, format); });
  if (found == recipe.paths.end()) {
    model::throw_input_error("recipe {} has no tensor cores for {}", recipe.name, format_name(format));
  }
  return *found;
}

std::string describe_recipe(const Recipe& recipe) {
  std::string text = recipe.name;
  for (const auto& [format, label] : {std::pair{Format::kE4m3, "FP8"}, std::pair{Format::kBf16, "BF16"}}) {
    const auto path = std::ranges::find_if(recipe.paths, [&, seen = format](const Path& p) { return takes(p, seen); });
    if (path == recipe.paths.end()) {
      continue;
    }
    text += fmt::format("; {} {} ({})", label, describe_path(*path), evidence_text(path->evidence));
    if (format == Format::kE4m3) {
      text += fmt::format(", every {} products {}", recipe.promotion.every, form_text(recipe.promotion.form));
    } else if (recipe.chunks != Chunks{}) {
      text += fmt::format(", {} splits of K, steps {}",
                          recipe.chunks.num_splits,
                          recipe.chunks.descending ? "descending" : "ascending");
    }
  }
  return text;
}

}  // namespace reference::tensor_core
