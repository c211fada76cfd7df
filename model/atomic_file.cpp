#include "model/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "model/check.hpp"

namespace model {

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path), temporary_(path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw_input_error("{}: cannot write: not a regular file", path.string());
  }
  static std::atomic<int64_t> num_files = 0;
  temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), num_files++);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    if (!committed_) {
      ::unlink(temporary_.c_str());
    }
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t num_written = ::write(descriptor_, bytes.data(), bytes.size());
    if (num_written < 0 && errno != EINTR) {
      fail(errno);
    }
    if (num_written > 0) {
      bytes = bytes.subspan(static_cast<size_t>(num_written));
    }
  }
}

void AtomicFile::commit() {
  // Some file systems report a full disk only here.
  if (::fsync(descriptor_) != 0) {
    fail(errno);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(errno);
  }
  committed_ = true;
}

void AtomicFile::fail(int error) const {
  throw_input_error("{}: cannot write: {}", path_.string(), std::strerror(error));
}

}  // namespace model
