#include "tools/record_journal.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "golden/store.hpp"
#include "model/check.hpp"
#include "model/dtype.hpp"

namespace tools {
namespace {

using nlohmann::json;

constexpr int64_t kLongestLine = 1 << 16;

// The next line without its end; empty if the file stops before that.
std::optional<std::string> next_line(std::fstream& file) {
  std::string line;
  for (char c = 0; file.get(c);) {
    if (c == '\n') {
      return line;
    }
    line += c;
    if (static_cast<int64_t>(line.size()) > kLongestLine) {
      break;
    }
  }
  return std::nullopt;
}

}  // namespace

// The entry that a line announces, whose bytes begin at `begin`. Empty if it is none.
std::optional<std::pair<std::string, RecordJournal::Entry>> RecordJournal::parsed(const std::string& line,
                                                                                  int64_t begin) {
  try {
    const json fields = json::parse(line);
    const auto dtype = model::parse_dtype(fields.at("dtype").get<std::string>());
    Entry entry{.dtype = dtype.value(),
                .shape = fields.at("shape").get<model::Shape>(),
                .begin = begin,
                .num_bytes = fields.at("bytes").get<int64_t>(),
                .hash = fields.at("hash").get<std::string>()};
    return std::pair{fields.at("key").get<std::string>(), std::move(entry)};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// The file: a line of identity; then of each output a line of JSON, its bytes, and a line end.
RecordJournal::RecordJournal(std::filesystem::path path, const std::string& identity) : path_(std::move(path)) {
  const std::string first = json{{"dsv3_journal", identity}}.dump(-1, ' ', true, json::error_handler_t::replace);
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) {
    std::ofstream created(path_, std::ios::binary);
    if (!(created << first << '\n') || !created.flush()) {
      model::throw_input_error("{}: cannot be written", path_.string());
    }
  }
  file_.open(path_, std::ios::in | std::ios::out | std::ios::binary);
  const auto found = next_line(file_);
  if (!file_.is_open() || !found || *found != first) {
    model::throw_input_error("{}: what an interrupted run of another command or version left; delete it to record anew",
                             path_.string());
  }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path_));
  int64_t complete = static_cast<int64_t>(file_.tellg());
  for (auto line = next_line(file_); line; line = next_line(file_)) {
    auto entry = parsed(*line, static_cast<int64_t>(file_.tellg()));
    if (!entry || entry->second.begin + entry->second.num_bytes + 1 > size) {
      break;
    }
    complete = entry->second.begin + entry->second.num_bytes + 1;
    entries_.insert(std::move(*entry));
    file_.seekg(complete);
  }
  file_.close();
  std::filesystem::resize_file(path_, static_cast<uintmax_t>(complete));
  file_.open(path_, std::ios::in | std::ios::out | std::ios::binary);
}

bool RecordJournal::read(const std::string& key, model::TensorView& output) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return false;
  }
  const Entry& entry = found->second;
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(entry.num_bytes));
  file_.seekg(entry.begin);
  file_.read(reinterpret_cast<char*>(bytes->data()), entry.num_bytes);
  output = {entry.dtype, entry.shape, *bytes, bytes};
  if (!file_ || golden::content_hash(output) != entry.hash) {
    model::throw_input_error("{}: the bytes of {} are damaged; delete it to record anew", path_.string(), key);
  }
  return true;
}

void RecordJournal::append(const std::string& key, const model::TensorView& output) {
  const json fields{{"key", key},
                    {"dtype", model::dtype_name(output.dtype)},
                    {"shape", output.shape},
                    {"bytes", output.bytes.size()},
                    {"hash", golden::content_hash(output)}};
  file_.seekp(0, std::ios::end);
  file_ << fields.dump() << '\n';
  file_.write(reinterpret_cast<const char*>(output.bytes.data()), static_cast<std::streamsize>(output.bytes.size()));
  file_ << '\n';
  if (!file_.flush()) {
    model::throw_input_error("{}: cannot be written (is the disk full?)", path_.string());
  }
}

void RecordJournal::remove() {
  file_.close();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace tools
