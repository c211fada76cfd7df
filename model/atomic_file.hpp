// A file that appears under its name only when complete: written to a temporary beside it, then renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace model {

class AtomicFile {
 public:
  // Throws InputError when the place cannot be written or holds something other than a regular file.
  explicit AtomicFile(const std::filesystem::path& path);
  // Without commit() the temporary is removed and the target stays as it was.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Both throw InputError.
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace model
