#include "tools/infer/requests.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/json_fields.hpp"
#include "text/chat_template.hpp"
#include "tools/json_lines.hpp"
#include "tools/prompt_text.hpp"

namespace tools {
namespace {

std::string read_text(const std::string& path, const std::string& flag) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    model::throw_input_error("{} {}: cannot be read", flag, path);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<int32_t> parse_ids(const std::string& flag, const std::string& list) {
  std::vector<int32_t> ids;
  std::stringstream items(list + ",");  // so that an item that is missing at the end is seen
  for (std::string item; !list.empty() && std::getline(items, item, ',');) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    if (error != std::errc() || end != item.data() + item.size()) {
      model::throw_input_error("{}: '{}' is not a token id", flag, item);
    }
    ids.push_back(id);
  }
  return ids;
}

// Makes token ids of the ways to say a prompt.
class Prompts {
 public:
  Prompts(const InferFlags& flags, const std::optional<text::Tokenizer>& tokenizer)
      : flags_(flags), tokenizer_(tokenizer) {}

  [[nodiscard]] std::vector<int32_t> of_text(const std::string& text, const std::string& what) const {
    if (flags_.chat) {
      check_prompt_text(text, what);
      const auto messages = nlohmann::ordered_json::array({{{"role", "user"}, {"content", text}}});
      return of_conversation({{"messages", messages}}, what);
    }
    return prompt_ids(tokenizer(what), text, what);
  }

  // `conversation`: an object with messages and perhaps tools.
  [[nodiscard]] std::vector<int32_t> of_conversation(const nlohmann::ordered_json& conversation,
                                                     const std::string& what) const {
    const auto& encoder = tokenizer(what);
    const auto format = text::ChatTemplate::load(flags_.checkpoint);
    text::ChatOptions options{.add_generation_prompt = true};
    if (flags_.thinking) {
      options.thinking = true;
    }
    options.tools = tools_of(conversation, format, what);
    return encoder.encode(format.render(conversation.at("messages"), options, what));
  }

 private:
  [[nodiscard]] const text::Tokenizer& tokenizer(const std::string& what) const {
    if (!tokenizer_) {
      model::throw_input_error("{}: {} has no tokenizer.json; give token ids", what, flags_.checkpoint);
    }
    return *tokenizer_;
  }

  const InferFlags& flags_;
  const std::optional<text::Tokenizer>& tokenizer_;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::optional<int64_t> max_new_tokens;
  std::string what;  // opens messages: "--prompt", "FILE:3"
};

Prompt prompt_of_line(const JsonLine& line, const Prompts& prompts) {
  const std::string& what = line.origin;
  model::JsonFields fields(line.value, what, "");
  if (fields.has("prompt") + fields.has("ids") + fields.has("messages") != 1) {
    fields.fail("expected one of prompt, ids and messages");
  }
  Prompt prompt{.ids = {}, .max_new_tokens = {}, .what = what};
  if (fields.has("prompt")) {
    prompt.ids = prompts.of_text(fields.text_or("prompt", ""), what);
  } else if (fields.has("messages")) {
    // Once more, with the order of names that a chat format may print.
    fields.ignore({"tools"});
    prompt.ids = prompts.of_conversation(nlohmann::ordered_json::parse(line.text), what);
  } else {
    const auto ids = fields.integers("ids", 0);
    prompt.ids.assign(ids.begin(), ids.end());
  }
  if (fields.has("max_new_tokens")) {
    prompt.max_new_tokens = fields.integer("max_new_tokens", 1);
  }
  if (const auto unknown = fields.unread_keys(); !unknown.empty()) {
    fields.fail("unknown key " + unknown[0]);
  }
  return prompt;
}

std::vector<Prompt> prompts_of(const InferFlags& flags, const Prompts& prompts) {
  if (!flags.prompt_ids.empty()) {
    return {{parse_ids("--prompt-ids", flags.prompt_ids), {}, "--prompt-ids"}};
  }
  if (!flags.prompt_file.empty()) {
    const std::string what = "--prompt-file " + flags.prompt_file;
    return {{prompts.of_text(read_text(flags.prompt_file, "--prompt-file"), what), {}, what}};
  }
  if (flags.batch_file.empty()) {
    return {{prompts.of_text(flags.prompt, "--prompt"), {}, "--prompt"}};
  }
  std::vector<Prompt> batch;
  for_each_json_line(flags.batch_file, [&](const JsonLine& line) { batch.push_back(prompt_of_line(line, prompts)); });
  if (batch.empty()) {
    model::throw_input_error("--batch {}: expected a JSON object on each line", flags.batch_file);
  }
  return batch;
}

std::vector<int32_t> stop_tokens_of(const InferFlags& flags,
                                    const model::ModelConfig& config,
                                    const std::optional<text::Tokenizer>& tokenizer) {
  auto ids = parse_ids("--stop-ids", flags.stop_ids);
  for (const int32_t id : ids) {
    if (id < 0 || id >= config.vocab_size) {
      model::throw_input_error("--stop-ids: token id {} is outside the vocabulary of {}", id, config.vocab_size);
    }
  }
  if (!flags.ignore_eos) {
    ids.insert(ids.end(), config.eos_token_ids.begin(), config.eos_token_ids.end());
    if (tokenizer && tokenizer->eos_id()) {
      ids.push_back(*tokenizer->eos_id());
    }
  }
  return ids;
}

}  // namespace

std::vector<reference::Request> requests_of(const InferFlags& flags,
                                            const model::ModelConfig& config,
                                            const std::optional<text::Tokenizer>& tokenizer) {
  const Prompts prompts(flags, tokenizer);
  const auto stop_tokens = stop_tokens_of(flags, config, tokenizer);
  std::vector<reference::Request> requests;
  for (Prompt& prompt : prompts_of(flags, prompts)) {
    reference::Request request{.prompt = std::move(prompt.ids),
                               .max_new_tokens = 1,
                               .sampling = flags.sampling,
                               .draw_request = static_cast<int64_t>(requests.size()),
                               .stop_tokens = stop_tokens};
    reference::check_request(config, request, prompt.what);
    const auto wished = prompt.max_new_tokens ? prompt.max_new_tokens : flags.max_new_tokens;
    const int64_t room = config.max_position_embeddings - static_cast<int64_t>(request.prompt.size());
    request.max_new_tokens = wished.value_or(std::min(kDefaultNewTokens, room));
    reference::check_request(config, request, prompt.what);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace tools
