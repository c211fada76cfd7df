// Chat templates, in the constructs that DeepSeek's are written in. Expected texts: jinja2 3.1.6 with trim_blocks and lstrip_blocks,
// or the rules of its documentation worked out by hand.
#include "text/chat_template.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "tests/temp_dir.hpp"

namespace {

using nlohmann::ordered_json;

class Chat : public testing::Test {
 protected:
  std::string render(const std::string& source, const std::string& messages, const text::ChatOptions& options = {}) {
    const ordered_json config = {{"bos_token", {{"content", "<s>"}}}, {"eos_token", "</s>"}, {"chat_template", source}};
    write_bytes(folder_ / "tokenizer_config.json", config.dump());
    return text::ChatTemplate::load(folder_.path()).render(ordered_json::parse(messages), options, "chat");
  }

  std::string refusal(const std::string& source, const std::string& messages = "[]") {
    try {
      render(source, messages);
      return "";
    } catch (const model::InputError& error) {
      return error.what();
    }
  }

  TempDir folder_;
};

TEST_F(Chat, RolesAndTheGenerationPrompt) {
  const std::string source =
      "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}"
      "{%- for message in messages %}{%- if message['role'] == 'user' %}{{'[U]' + message['content']}}"
      "{%- elif message.role == 'assistant' and message['content'] is not none %}{{'[A]' + message['content'] + "
      "eos_token}}"
      "{%- else %}{{'[?]'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt %}{{'[A]'}}{% endif %}";
  const std::string messages =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":" a "},{"role":"assistant","content":null}])";
  EXPECT_EQ(render(source, messages), "<s>[U]q[A] a </s>[?]");
  EXPECT_EQ(render(source, messages, {.add_generation_prompt = true, .thinking = {}}), "<s>[U]q[A] a </s>[?][A]");
}

// A namespace reaches out of a loop, a variable does not.
TEST_F(Chat, OnlyANamespaceOutlivesAPassOfALoop) {
  EXPECT_EQ(render("{% set ns = namespace(n='', f=false) %}{% set v = 'x' %}{% for m in messages %}{% set ns.n = ns.n "
                   "+ m.content %}"
                   "{{ v }}{% set v = 'y' %}{% endfor %}{{ ns.n }}{{ v }}{{ ns.f }}",
                   R"([{"role":"a","content":"1"},{"role":"b","content":"2"}])"),
            "xx12xFalse");
}

TEST_F(Chat, ALoopOverNothingIsEmpty) {
  EXPECT_EQ(render("{% for c in messages[0].tool_calls %}{{ c.type }}{% endfor %}.", R"([{"role":"a"}])"), ".");
}

TEST_F(Chat, ThinkingIsStrippedAsPythonSplits) {
  const std::string tail = R"([{"role":"a","content":"x</think>y</think>z"}])";
  EXPECT_EQ(render("{{ messages[0].content.split('</think>')[-1] }}", tail), "z");
  EXPECT_EQ(render("{{ messages[0].content.split('</think>', 1)[1] }}", tail), "y</think>z");
  EXPECT_EQ(render("{{ '</think>' in messages[0].content and 'tool_calls' not in messages[0] }}", tail), "True");
  EXPECT_EQ(render("{% if not thinking is defined %}no{% elif thinking %}yes{% else %}off{% endif %}", "[]"), "no");
  EXPECT_EQ(
      render("{% if thinking %}yes{% else %}off{% endif %}", "[]", {.add_generation_prompt = false, .thinking = true}),
      "yes");
}

TEST_F(Chat, WhiteSpaceFollowsTrimBlocksAndDashes) {
  EXPECT_EQ(render("a\n  {% if true %}\n b\n  {% endif %}\nc\n", "[]"), "a\n b\nc");
  EXPECT_EQ(render("a \n {%- if true -%} \n b {{ 'x' -}} \n y {#- note -#} z{% endif %}", "[]"), "ab xyz");
  EXPECT_EQ(render("  {{ 1 }}\n  {{ 2 }}\n\n", "[]"), "  1\n  2\n");
  EXPECT_EQ(render("{{ 'a' 'b' ~ 3 }}{{ \"q\\n\\\\\" }}", "[]"), "ab3q\n\\");
}

TEST_F(Chat, ToolArgumentsKeepTheirOrderInJson) {
  EXPECT_EQ(render("{% set a = messages[0].x %}{{ (a if a is string else a|tojson) + '!' }}",
                   R"([{"role":"a","x":{"z":1,"a":[1,2.5,true,null,"\u00e9\"\n"],"e":{}}}])"),
            "{\"z\": 1, \"a\": [1, 2.5, true, null, \"\u00e9\\\"\\n\"], \"e\": {}}!");
}

TEST_F(Chat, MessagesThatDoNotFitAreRefusedWithThePlace) {
  const std::string message = refusal("{% for m in messages %}{{ 'a' + m.content }}{% endfor %}", R"([{"role":"u"}])");
  EXPECT_EQ(message, "chat: the chat template adds a JSON string and m.content (undefined), expected two strings");
  EXPECT_NE(refusal("{{ 'a' + messages[0].content }}", R"([{"role":"u","content":["x"]}])").find("a JSON array"),
            std::string::npos);
  EXPECT_NE(refusal("x", R"([{"content":"x"}])").find("expected objects with a role"), std::string::npos);
}

TEST_F(Chat, ConstructsOutsideTheSubsetAreRefusedByName) {
  for (const auto& [source, name] :
       std::vector<std::pair<std::string, std::string>>{{"{% macro f() %}{% endmacro %}", "macro"},
                                                        {"{{ x|upper }}", "upper"},
                                                        {"{{ x is odd }}", "odd"},
                                                        {"{{ x.format(1) }}", "format"},
                                                        {"{{ range(3) }}", "range"},
                                                        {"{% for m in messages %}{{ loop.first }}{% endfor %}", "loop"},
                                                        {"{{ x * 2 }}", "*"},
                                                        {"{{ x", "without end"},
                                                        {"{{ 'x }}", "without end"},
                                                        {"{% if x %}", "endif"},
                                                        {"{% endfor %}", "endfor"},
                                                        {"{{ " + std::string(500, '(') + " }}", "too deep"}}) {
    const std::string message = refusal(source);
    EXPECT_NE(message.find(name), std::string::npos) << source << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// Expected: the order of transformers, whose newer versions write the file and leave the old place alone.
TEST_F(Chat, AFileOfItsOwnWinsOverTheConfig) {
  write_bytes(folder_ / "chat_template.jinja", "{{ bos_token }}file {{ messages[0].content }}\n");
  EXPECT_EQ(render("config", R"([{"role":"u","content":"q"}])"), "<s>file q");
  write_bytes(folder_ / "tokenizer_config.json", R"({"bos_token":"<b>"})");
  EXPECT_EQ(text::ChatTemplate::load(folder_.path())
                .render(ordered_json::parse(R"([{"role":"u","content":"q"}])"), {}, "chat"),
            "<b>file q");
}

TEST_F(Chat, ToolsGoWhereAFormatListsThem) {
  const ordered_json tools = ordered_json::parse(R"([{"type":"function","function":{"name":"f","a":[1]}}])");
  const text::ChatOptions options{.tools = &tools};
  EXPECT_EQ(render("{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}.", "[]", options),
            R"({"type": "function", "function": {"name": "f", "a": [1]}}.)");
  EXPECT_EQ(render("{% if tools is defined %}tools{% else %}none{% endif %}", "[]"), "none");
  EXPECT_EQ(render("no place for them", "[]", options), "no place for them");
}

TEST_F(Chat, OfSeveralFormatsTheOneForToolsIsTakenWithTools) {
  const ordered_json config = ordered_json::parse(
      R"j({"chat_template":[{"name":"default","template":"plain"},{"name":"rag","template":"{{ nothing( }}"},
           {"name":"tool_use","template":"{{ tools[0].name }}"}]})j");
  write_bytes(folder_ / "tokenizer_config.json", config.dump());
  const auto format = text::ChatTemplate::load(folder_.path());
  const ordered_json tools = ordered_json::parse(R"([{"name":"f"}])");
  EXPECT_EQ(format.render(ordered_json::array(), {}, "chat"), "plain");
  EXPECT_EQ(format.render(ordered_json::array(), {.tools = &tools}, "chat"), "f");
}

TEST_F(Chat, ACheckpointWithoutFormatIsRefused) {
  const auto mini = source_dir() / "golden/data/mini/checkpoint";
  EXPECT_THROW(text::ChatTemplate::load(mini), model::InputError);
}

}  // namespace
