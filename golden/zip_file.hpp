// The entries of an uncompressed zip archive, as torch.save writes them: views into the mapped file. Compressed and encrypted
// archives are refused. Torch stores entries as they are so that they can be mapped; that needs a directory reader and no inflater.
// Source: PKWARE APPNOTE 6.3.9, sections 4.3.7, 4.3.12-4.3.16 and 4.5.3 (zip64).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace golden {

struct ZipFile {
  std::map<std::string, std::span<const std::byte>> entries;
  std::shared_ptr<const void> owner;  // keeps the bytes alive
  int64_t num_bytes = 0;              // of the whole file
};

// Throws InputError: unreadable, not a zip file, truncated, an entry that is compressed, encrypted, outside the file or there twice.
ZipFile read_zip(const std::filesystem::path& path);

}  // namespace golden
