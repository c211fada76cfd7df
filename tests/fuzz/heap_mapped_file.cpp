// MappedFile as the fuzzers link it: the bytes lie on the heap, where the address sanitizer sees a read beyond their end. Behind the
// end of a mapping the rest of its last page would be read without anybody noticing.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "model/check.hpp"
#include "model/mapped_file.hpp"

namespace model {

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw_input_error("{}: cannot open", path.string());
  }
  const std::vector<char> read{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  auto* bytes = new std::byte[read.size()];
  std::ranges::transform(read, bytes, [](char byte) { return static_cast<std::byte>(byte); });
  return std::shared_ptr<const MappedFile>(new MappedFile({bytes, read.size()}));
}

MappedFile::~MappedFile() {
  delete[] bytes_.data();
}

}  // namespace model
