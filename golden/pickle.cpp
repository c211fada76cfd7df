#include "golden/pickle.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "golden/little_endian.hpp"
#include "golden/pickle_values.hpp"

namespace golden {
namespace {

using namespace pickled;
using model::throw_input_error;

constexpr size_t kMostBytes = 64 << 20;
constexpr size_t kMostNodes = 2 << 20;
constexpr size_t kMostDepth = 64;
constexpr size_t kMostNameBytes = 64 << 20;  // of the ways to all tensors and containers together
constexpr size_t kMostExtents = 16;
constexpr size_t kMostKeyBytes = 64;  // of a storage

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& origin) : origin_(origin), reader_(bytes, origin) {}

  std::vector<std::pair<std::string, PickledTensor>> run() {
    while (step(reader_.number<uint8_t>())) {
      if (nodes_.size() > kMostNodes || stack_.size() > kMostNodes) {
        throw_input_error("{}: holds more than {} values", origin_, kMostNodes);
      }
    }
    const Index root = pop();
    if (!stack_.empty()) {
      broken("ends with values left over");
    }
    collect(root, "", 0);
    return std::move(found_);
  }

 private:
  [[noreturn]] void broken(std::string_view what) const { throw_input_error("{}: broken pickle: {}", origin_, what); }

  Index add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<Index>(nodes_.size() - 1);
  }
  void push(Node node) { stack_.push_back(add(std::move(node))); }

  Index pop() {
    if (stack_.empty() || nodes_[stack_.back()].kind == Kind::kMark) {
      broken("takes a value where there is none");
    }
    const Index index = stack_.back();
    stack_.pop_back();
    return index;
  }

  Node& top(Kind kind) {
    if (stack_.empty() || nodes_[stack_.back()].kind != kind) {
      broken("fills something that is not the container it names");
    }
    return nodes_[stack_.back()];
  }

  std::vector<Index> pop_to_mark() {
    auto mark = stack_.end();
    while (mark != stack_.begin() && nodes_[*(mark - 1)].kind != Kind::kMark) {
      --mark;
    }
    if (mark == stack_.begin()) {
      broken("closes a group that was never opened");
    }
    std::vector<Index> items(mark, stack_.end());
    stack_.erase(mark - 1, stack_.end());
    return items;
  }

  void push_tuple(size_t count) {
    Node tuple{.kind = Kind::kTuple};
    for (size_t i = 0; i < count; ++i) {
      tuple.items.insert(tuple.items.begin(), pop());
    }
    push(std::move(tuple));
  }

  void extend(Kind kind, const std::vector<Index>& items) {
    if (kind == Kind::kDict && items.size() % 2 != 0) {
      broken("a key without a value");
    }
    Node& container = top(kind);
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  void set_one(Kind kind, size_t count) {
    std::vector<Index> items(count);
    std::ranges::generate(items, [&] { return pop(); });
    std::ranges::reverse(items);
    extend(kind, items);
  }

  void remember(uint64_t slot) {
    if (stack_.empty() || nodes_[stack_.back()].kind == Kind::kMark) {
      broken("remembers a value where there is none");
    }
    memo_[slot] = stack_.back();
  }

  void recall(uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) {
      broken("recalls a value it never remembered");
    }
    stack_.push_back(found->second);
  }

  std::string line() {
    std::string text;
    for (char c = reader_.number<char>(); c != '\n'; c = reader_.number<char>()) {
      text += c;
    }
    return text;
  }

  void push_global(const std::string& name) {
    const auto typed = typed_globals().find(name);
    const bool known = typed != typed_globals().end() || name == kRebuildTensor2 || name == kRebuildTensor3 ||
                       name == kRebuildParameter || name == kOrderedDict;
    if (!known) {
      throw_input_error("{}: refuses to load {}: only tensors and plain containers are read", origin_, printable(name));
    }
    push({.kind = Kind::kGlobal, .text = name, .dtype = typed == typed_globals().end() ? std::nullopt : typed->second});
  }

  const Node& item(const Node& tuple, size_t i, Kind kind) const {
    if (i >= tuple.items.size() || nodes_[tuple.items[i]].kind != kind) {
      broken("an argument of a tensor is missing or of another type");
    }
    return nodes_[tuple.items[i]];
  }

  std::vector<int64_t> extents(const Node& tuple) const {
    if (tuple.items.size() > kMostExtents) {
      broken("a tensor of more than 16 dimensions");
    }
    std::vector<int64_t> result;
    for (size_t i = 0; i < tuple.items.size(); ++i) {
      result.push_back(item(tuple, i, Kind::kInteger).integer);
    }
    return result;
  }

  // ("storage", type, key, device, elements)
  void push_storage() {
    const Node& id = nodes_[pop()];
    if (id.kind != Kind::kTuple || item(id, 0, Kind::kText).text != "storage") {
      broken("a reference to something that is not a storage");
    }
    const Node& type = item(id, 1, Kind::kGlobal);
    if (!type.dtype && type.text != "torch.storage.UntypedStorage") {
      broken("a storage of no type");
    }
    const std::string& key = item(id, 2, Kind::kText).text;
    if (key.size() > kMostKeyBytes) {
      broken("a storage with a name of " + std::to_string(key.size()) + " bytes");
    }
    Node storage{
        .kind = Kind::kStorage, .integer = item(id, 4, Kind::kInteger).integer, .text = key, .dtype = type.dtype};
    push(std::move(storage));
  }

  // (storage, offset, shape, strides, requires_grad, hooks[, dtype])
  void push_tensor(const Node& arguments, bool typed) {
    const Node& storage = item(arguments, 0, Kind::kStorage);
    const auto dtype = typed ? item(arguments, 6, Kind::kGlobal).dtype : storage.dtype;
    if (!dtype) {
      broken("a tensor of no dtype");
    }
    tensors_.push_back({.storage_key = storage.text,
                        .dtype = *dtype,
                        .storage_len = storage.dtype ? storage.integer : storage.integer / model::dtype_bytes(*dtype),
                        .offset = item(arguments, 1, Kind::kInteger).integer,
                        .shape = extents(item(arguments, 2, Kind::kTuple)),
                        .strides = extents(item(arguments, 3, Kind::kTuple))});
    push({.kind = Kind::kTensor, .integer = static_cast<int64_t>(tensors_.size() - 1)});
  }

  void reduce() {
    // References, not copies: hostile input calls with the same large tuple again and again. Nothing is added before their last use.
    const Node& arguments = nodes_[pop()];
    const Node& callee = nodes_[pop()];
    if (arguments.kind != Kind::kTuple || callee.kind != Kind::kGlobal) {
      broken("calls something that cannot be called");
    }
    if (callee.text == kOrderedDict && arguments.items.empty()) {
      push({.kind = Kind::kDict});
    } else if (callee.text == kRebuildParameter) {
      item(arguments, 0, Kind::kTensor);
      stack_.push_back(arguments.items[0]);
    } else if (callee.text == kRebuildTensor2 || callee.text == kRebuildTensor3) {
      push_tensor(arguments, callee.text == kRebuildTensor3);
    } else {
      broken("calls " + callee.text + " with arguments torch.save does not write");
    }
  }

  void push_long(std::span<const std::byte> bytes) {
    if (bytes.size() > sizeof(int64_t)) {
      broken("an integer of more than 64 bits");
    }
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
    }
    const bool negative = !bytes.empty() && (bytes.back() & std::byte{0x80}) != std::byte{0};
    if (negative && bytes.size() < sizeof(int64_t)) {
      value |= ~uint64_t{0} << (8 * bytes.size());
    }
    push({.kind = Kind::kInteger, .integer = std::bit_cast<int64_t>(value)});
  }

  void push_text(uint64_t count) { push({.kind = Kind::kText, .text = reader_.text(count)}); }

  // False at the end. Opcodes by the names of pickletools.
  bool step(uint8_t opcode) {
    switch (opcode) {
      case 0x80: reader_.take(1); break;                                                       // PROTO
      case 0x95: reader_.take(8); break;                                                       // FRAME
      case '.': return false;                                                                  // STOP
      case '(': push({.kind = Kind::kMark}); break;                                            // MARK
      case 'N': push({}); break;                                                               // NONE
      case 0x88: push({.integer = 1}); break;                                                  // NEWTRUE
      case 0x89: push({}); break;                                                              // NEWFALSE
      case 'G': reader_.take(8), push({}); break;                                              // BINFLOAT
      case 'J': push({.kind = Kind::kInteger, .integer = reader_.number<int32_t>()}); break;   // BININT
      case 'K': push({.kind = Kind::kInteger, .integer = reader_.number<uint8_t>()}); break;   // BININT1
      case 'M': push({.kind = Kind::kInteger, .integer = reader_.number<uint16_t>()}); break;  // BININT2
      case 0x8a: push_long(reader_.take(reader_.number<uint8_t>())); break;                    // LONG1
      case 'X': push_text(reader_.number<uint32_t>()); break;                                  // BINUNICODE
      case 0x8c: push_text(reader_.number<uint8_t>()); break;                                  // SHORT_BINUNICODE
      case 0x8d: push_text(reader_.number<uint64_t>()); break;                                 // BINUNICODE8
      case ')': push_tuple(0); break;                                                          // EMPTY_TUPLE
      case 0x85: push_tuple(1); break;                                                         // TUPLE1
      case 0x86: push_tuple(2); break;                                                         // TUPLE2
      case 0x87: push_tuple(3); break;                                                         // TUPLE3
      case 't': {                                                                              // TUPLE
        auto items = pop_to_mark();
        push({.kind = Kind::kTuple, .items = std::move(items)});
        break;
      }
      case ']': push({.kind = Kind::kList}); break;           // EMPTY_LIST
      case '}': push({.kind = Kind::kDict}); break;           // EMPTY_DICT
      case 'a': set_one(Kind::kList, 1); break;               // APPEND
      case 's': set_one(Kind::kDict, 2); break;               // SETITEM
      case 'e': extend(Kind::kList, pop_to_mark()); break;    // APPENDS
      case 'u': extend(Kind::kDict, pop_to_mark()); break;    // SETITEMS
      case 'q': remember(reader_.number<uint8_t>()); break;   // BINPUT
      case 'r': remember(reader_.number<uint32_t>()); break;  // LONG_BINPUT
      case 0x94: remember(memo_.size()); break;               // MEMOIZE
      case 'h': recall(reader_.number<uint8_t>()); break;     // BINGET
      case 'j': recall(reader_.number<uint32_t>()); break;    // LONG_BINGET
      case 'c': {                                             // GLOBAL
        const std::string module = line();
        push_global(module + "." + line());
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const Index name = pop();
        const Index module = pop();
        push_global(nodes_[module].text + "." + nodes_[name].text);
        break;
      }
      case 'Q': push_storage(); break;  // BINPERSID
      case 'R': reduce(); break;        // REDUCE
      case 'b':                         // BUILD: attributes of an OrderedDict, a state_dict's versions
        pop();
        top(Kind::kDict);
        break;
      default:
        throw_input_error(
            "{}: refuses pickle opcode 0x{:02x}: only tensors and plain containers are read", origin_, opcode);
    }
    return true;
  }

  std::string key_text(Index index) const {
    const Node& key = nodes_[index];
    return key.kind == Kind::kText ? key.text : key.kind == Kind::kInteger ? std::to_string(key.integer) : "?";
  }

  // Walks to the tensors. Shared containers are walked once for each way to them, which is why the ways are counted.
  void collect(Index index, const std::string& name, size_t depth) {
    const Node& node = nodes_[index];
    num_name_bytes_ += name.size();
    if (depth > kMostDepth || num_name_bytes_ > kMostNameBytes || ++num_visited_ > kMostNodes) {
      throw_input_error("{}: containers are nested more than {} deep or hold too much", origin_, kMostDepth);
    }
    if (node.kind == Kind::kTensor) {
      found_.emplace_back(name, tensors_[static_cast<size_t>(node.integer)]);
    } else if (node.kind == Kind::kDict) {
      for (size_t i = 0; i < node.items.size(); i += 2) {
        const std::string key = key_text(node.items[i]);
        collect(node.items[i + 1], name.empty() ? key : name + "." + key, depth + 1);
      }
    } else if (node.kind == Kind::kList || node.kind == Kind::kTuple) {
      for (size_t i = 0; i < node.items.size(); ++i) {
        collect(node.items[i], name + "[" + std::to_string(i) + "]", depth + 1);
      }
    }
  }

  std::string origin_;
  ByteReader reader_;
  std::vector<Node> nodes_;
  std::vector<Index> stack_;
  std::map<uint64_t, Index> memo_;
  std::vector<PickledTensor> tensors_;
  std::vector<std::pair<std::string, PickledTensor>> found_;
  size_t num_visited_ = 0;
  size_t num_name_bytes_ = 0;
};

}  // namespace

std::vector<std::pair<std::string, PickledTensor>> read_pickle(std::span<const std::byte> bytes,
                                                               const std::string& origin) {
  if (bytes.size() > kMostBytes) {
    throw_input_error("{}: a pickle of {} bytes, expected at most {}", origin, bytes.size(), kMostBytes);
  }
  return Machine(bytes, origin).run();
}

}  // namespace golden
