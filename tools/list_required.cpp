#include "tools/list_required.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "golden/formats.hpp"
#include "model/check.hpp"
#include "tools/cli.hpp"

namespace tools {
namespace {

struct OpWords {
  std::string_view op;  // as a name table writes it, without the layer
  std::string_view shape;
};

// docs/contracts.md, section 1.
constexpr OpWords kOps[] = {
    {"embed", "tokens x hidden"},
    {"attn_norm", "tokens x hidden"},
    {"attn.q_a", "tokens x q_lora"},
    {"attn.q_a_norm", "tokens x q_lora"},
    {"attn.q_b", "tokens x heads * (nope + rope), before rotation"},
    {"attn.q", "tokens x heads * (nope + rope), in place of the three above when there is no q_lora"},
    {"attn.kv_a", "tokens x (kv_lora + rope)"},
    {"attn.kv_a_norm", "tokens x kv_lora"},
    {"attn.q_rope", "tokens x heads x rope, rotated"},
    {"attn.k_rope", "tokens x rope, rotated"},
    {"attn.kv_b", "cached positions x heads * (nope + v); expanded form only"},
    {"attn.probs", "tokens x heads x keys; optional"},
    {"attn.context", "tokens x heads * v, input of o_proj"},
    {"attn.o_proj", "tokens x hidden"},
    {"attn_residual", "tokens x hidden, the sum as stored"},
    {"ffn_norm", "tokens x hidden"},
    {"moe.router_logits", "tokens x experts"},
    {"moe.router_scores", "tokens x experts"},
    {"moe.topk_ids", "tokens x k, integers"},
    {"moe.topk_weights", "tokens x k, routed scale included"},
    {"moe.expert.E.gate", "the expert's tokens x moe_intermediate"},
    {"moe.expert.E.up", "the expert's tokens x moe_intermediate"},
    {"moe.expert.E.act", "the expert's tokens x moe_intermediate"},
    {"moe.expert.E", "the expert's tokens x hidden, not yet weighted"},
    {"moe.routed", "tokens x hidden, before the shared expert"},
    {"moe.shared", "tokens x hidden"},
    {"moe.shared.gate", "tokens x shared intermediate"},
    {"moe.shared.up", "tokens x shared intermediate"},
    {"moe.shared.act", "tokens x shared intermediate"},
    {"mlp.gate", "tokens x intermediate"},
    {"mlp.up", "tokens x intermediate"},
    {"mlp.act", "tokens x intermediate"},
    {"ffn", "tokens x hidden"},
    {"output", "tokens x hidden, the residual stream after the layer"},
    {"latent", "cached positions x (kv_lora + rope)"},
    {"keys", "cached positions x heads x (nope + rope)"},
    {"values", "cached positions x heads x v"},
    {"final_norm", "tokens x hidden"},
    {"logits", "tokens x vocab"},
    {"enorm", "tokens x hidden"},
    {"hnorm", "tokens x hidden"},
    {"eh_proj", "tokens x hidden"},
    {"norm", "tokens x hidden"},
};

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const size_t found = text.find(what);
  return found == std::string::npos ? text : text.replace(found, what.size(), by);
}

// "layer.#.moe.expert.*.up" -> "layer.L.moe.expert.E.up".
std::string readable(std::string name, std::string_view first_number) {
  for (const std::string_view expert : {".expert.#", ".experts.#", ".expert.*"}) {
    name = replaced(name, expert, std::string(expert.substr(0, expert.size() - 1)) + "E");
  }
  return replaced(name, "#", first_number);
}

std::string_view shape_words(const std::string& op) {
  const auto found = std::ranges::find_if(
      kOps, [&](const OpWords& words) { return op == words.op || op.ends_with("." + std::string(words.op)); });
  CHECK(found != std::end(kOps));
  return found->shape;
}

std::string line(const std::string& foreign, const std::string& ours) {
  return fmt::format("{:<58} {:<30} {}\n", foreign, ours, shape_words(ours));
}

std::string own_names() {
  std::string text;
  for (const OpWords& words : kOps) {
    const bool of_model = words.op == "embed" || words.op == "final_norm" || words.op == "logits";
    const bool of_cache = words.op == "latent" || words.op == "keys" || words.op == "values";
    const bool of_mtp = words.op.ends_with("norm") && words.op.size() <= 5;
    const std::string prefix = of_model                          ? ""
                               : of_cache                        ? "cache.L."
                               : of_mtp || words.op == "eh_proj" ? "mtp.k."
                                                                 : "layer.L.";
    const std::string name = prefix + std::string(words.op);
    text += line(name, name);
  }
  return text;
}

}  // namespace

std::string required_text(std::string_view format) {
  if (format == "dsv3") {
    return own_names();
  }
  std::string text;
  std::set<std::string> seen;
  for (const golden::NameRow& row : golden::name_map(format).rows) {
    const std::string ours = readable(row.ours, row.ours.starts_with("mtp.") ? "k" : "L");
    if (!seen.insert(ours).second) {
      continue;
    }
    const std::string_view number = row.ours.starts_with("mtp.") ? "k" : "L";
    std::string foreign = readable(row.foreign, number);
    if (!row.second.empty()) {
      foreign += " and " + readable(row.second, number);
    }
    if (!row.slice_end.empty()) {
      foreign += fmt::format(" columns {} to {}", row.slice_begin, row.slice_end);
    }
    text += line(foreign, ours);
  }
  return text;
}

void add_list_required(CLI::App& command, std::string& format) {
  command
      .add_option("FORMAT", format, fmt::format("{} or a map file NAME.json", fmt::join(golden::known_formats(), ", ")))
      ->required();
}

int run_list_required(const std::string& format) {
  fmt::print("{}", required_text(format));
  return kExitOk;
}

}  // namespace tools
