// Every reader of a file that nobody vouches for, as a function of the file's bytes: what the fuzzers feed and the corpus replays.
#pragma once

#include <string_view>
#include <vector>

namespace fuzz {

struct Target {
  std::string_view name;                 // "safetensors"; also the folder of its corpus
  void (*read)(std::string_view bytes);  // throws what the reader throws
};

const std::vector<Target>& targets();
// CheckError if there is none of that name.
const Target& target(std::string_view name);

// Whether the reader took the bytes. It may refuse them with an InputError of one short, printable line; any other exception escapes.
bool takes(const Target& target, std::string_view bytes);

}  // namespace fuzz
