#include "golden/manifest_json.hpp"

#include <limits>
#include <set>
#include <string_view>

#include "golden/json_text.hpp"
#include "model/check.hpp"
#include "model/printable.hpp"

namespace golden {
namespace {

using model::throw_input_error;

// The fields in file order; writing and reading walk the same list, so neither can forget one.
template <typename ManifestRef, typename Visit>
void visit_fields(ManifestRef& manifest, Visit visit) {
  visit("mode", manifest.mode);
  visit("arithmetic", manifest.arithmetic);
  visit("profile", manifest.profile);
  visit("gemm", manifest.gemm);
  visit("scale", manifest.scale);
  visit("attention", manifest.attention);
  visit("rules", manifest.rules);
  visit("checkpoint", manifest.checkpoint);
  visit("checkpoint_hash", manifest.checkpoint_hash);
  visit("weight_hashes", manifest.weight_hashes);
  visit("tensor_hashes", manifest.tensor_hashes);
  visit("reduced", manifest.reduced);
  visit("cases", manifest.cases);
  visit("ops", manifest.ops);
  visit("fault", manifest.fault);
  visit("commit", manifest.commit);
  visit("version", manifest.version);
}

const Json& field(const Json& object, const char* key, const std::string& origin) {
  if (!object.is_object()) {
    throw_input_error("{}: expected an object, got {}", origin, object.type_name());
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    throw_input_error("{}: field \"{}\" is missing", origin, key);
  }
  return *found;
}

void read_value(const Json& value, const std::string& origin, std::string& out) {
  if (!value.is_string()) {
    throw_input_error("{}: expected a string, got {}", origin, value.type_name());
  }
  out = value.get<std::string>();
}

void read_value(const Json& value, const std::string& origin, std::map<std::string, std::string>& out) {
  if (!value.is_object()) {
    throw_input_error("{}: expected an object of strings, got {}", origin, value.type_name());
  }
  for (const auto& [key, text] : value.items()) {
    read_value(text, origin + ": " + model::printable(key), out[key]);
  }
}

void read_value(const Json& value, const std::string& origin, std::map<std::string, Reduced>& out) {
  if (!value.is_object()) {
    throw_input_error("{}: expected an object", origin);
  }
  constexpr int64_t kMaxExtent = int64_t{1} << 40;
  for (const auto& [key, item] : value.items()) {
    const std::string place = origin + ": " + model::printable(key);
    Reduced& reduced = out[key];
    read_value(field(item, "dtype", place), place + ": dtype", reduced.dtype);
    reduced.shape = read_integers<int64_t>(field(item, "shape", place), kMaxExtent, place + ": shape");
    read_value(field(item, "hash", place), place + ": hash", reduced.hash);
  }
}

void read_value(const Json& value, const std::string& origin, Case& out) {
  read_value(field(value, "name", origin), origin + ": name", out.name);
  read_value(field(value, "after", origin), origin + ": after", out.after);
  const Json& sequences = field(value, "sequences", origin);
  if (!sequences.is_array() || sequences.empty()) {
    throw_input_error("{}: sequences: expected a list of one or more lists of token ids", origin);
  }
  for (const Json& ids : sequences) {
    out.sequences.push_back(read_token_ids(ids, origin + ": sequences"));
  }
  constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
  out.mtp_ids = read_integers<int32_t>(field(value, "mtp_ids", origin), kMaxId, origin + ": mtp_ids");
  out.rows = read_integers<int64_t>(field(value, "rows", origin), out.num_tokens() - 1, origin + ": rows");
}

template <typename Element>
void read_value(const Json& value, const std::string& origin, std::vector<Element>& out) {
  if (!value.is_array()) {
    throw_input_error("{}: expected a list, got {}", origin, value.type_name());
  }
  for (const Json& element : value) {
    read_value(element, fmt::format("{}[{}]", origin, out.size()), out.emplace_back());
  }
}

Json to_json_value(const Case& c) {
  return {{"name", c.name}, {"after", c.after}, {"sequences", c.sequences}, {"mtp_ids", c.mtp_ids}, {"rows", c.rows}};
}

Json to_json_value(const std::map<std::string, Reduced>& reduced) {
  Json object = Json::object();
  for (const auto& [name, item] : reduced) {
    object[name] = {{"dtype", item.dtype}, {"shape", item.shape}, {"hash", item.hash}};
  }
  return object;
}

Json to_json_value(const std::vector<Case>& cases) {
  Json list = Json::array();
  for (const Case& c : cases) {
    list.push_back(to_json_value(c));
  }
  return list;
}

template <typename Value>
Json to_json_value(const Value& value) {
  return value;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  Json root;
  root["format_version"] = kFormatVersion;
  visit_fields(manifest, [&](const char* key, const auto& value) { root[key] = to_json_value(value); });
  return root.dump(-1, ' ', true, Json::error_handler_t::replace);  // arguments may hold any bytes
}

Manifest parse_manifest(std::string_view text, const std::string& origin) {
  const Json root = parse_json(text, origin);
  const Json& version = field(root, "format_version", origin);
  if (!version.is_number_integer() || version.get<int64_t>() < 1) {
    throw_input_error("{}: format_version: expected an integer from 1, got {}", origin, version.dump());
  }
  if (version.get<int64_t>() > kFormatVersion) {
    throw_input_error("{}: format version {} is newer than this program, which reads up to {}",
                      origin,
                      version.dump(),
                      kFormatVersion);
  }
  Manifest manifest;
  // Fields that older files do not have.
  const std::set<std::string_view> later{"arithmetic", "reduced"};
  visit_fields(manifest, [&](const char* key, auto& value) {
    if (!later.contains(key) || root.contains(key)) {
      read_value(field(root, key, origin), origin + ": " + key, value);
    }
  });
  return manifest;
}

}  // namespace golden
