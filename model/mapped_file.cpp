#include "model/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/check.hpp"

namespace model {
namespace {

struct Descriptor {
  int id;
  ~Descriptor() {
    if (id >= 0) {
      ::close(id);
    }
  }
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe must fail here, not wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.id < 0) {
    throw_input_error("{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(file.id, &status) != 0) {
    throw_input_error("{}: cannot inspect: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    throw_input_error("{}: not a regular file", path.string());
  }
  const auto num_bytes = static_cast<size_t>(status.st_size);
  std::span<const std::byte> bytes;
  if (num_bytes > 0) {
    void* address = ::mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, file.id, 0);
    if (address == MAP_FAILED) {
      throw_input_error("{}: cannot map {} bytes: {}", path.string(), num_bytes, std::strerror(errno));
    }
    bytes = {static_cast<const std::byte*>(address), num_bytes};
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace model
