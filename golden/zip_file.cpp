#include "golden/zip_file.hpp"

#include <algorithm>

#include "golden/little_endian.hpp"
#include "model/mapped_file.hpp"

namespace golden {
namespace {

using model::throw_input_error;

constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint16_t kZip64Extra = 1;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kLocator64Bytes = 20;

// Where the central directory lies.
struct Directory {
  uint64_t num_entries = 0;
  uint64_t offset = 0;
};

// One entry of it.
struct Entry {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint64_t stored_bytes = 0;
  uint64_t plain_bytes = 0;
  uint64_t offset = 0;  // of its local header
};

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, std::string origin)
      : bytes_(bytes), origin_(std::move(origin)), reader_(bytes, origin_) {}

  std::map<std::string, std::span<const std::byte>> entries() {
    const Directory directory = find_directory();
    std::map<std::string, std::span<const std::byte>> result;
    reader_.seek(directory.offset);
    for (uint64_t i = 0; i < directory.num_entries; ++i) {
      const Entry entry = read_entry();
      const uint64_t next = reader_.position();
      if (!result.emplace(entry.name, data_of(entry)).second) {
        throw_input_error("{}: two entries are called {}", origin_, printable(entry.name));
      }
      reader_.seek(next);
    }
    return result;
  }

 private:
  uint32_t signature_at(uint64_t position) {
    reader_.seek(position);
    return reader_.number<uint32_t>();
  }

  // The end record is last in the file, before a comment of at most 64 KiB.
  Directory find_directory() {
    const uint64_t size = bytes_.size();
    const uint64_t lowest = size - std::min<uint64_t>(size, kEndBytes + 0xFFFF);
    for (uint64_t position = size - std::min(size, kEndBytes) + 1; position-- > lowest;) {
      if (size - position < kEndBytes || signature_at(position) != kEndSignature) {
        continue;
      }
      reader_.seek(position + 10);
      Directory directory;
      directory.num_entries = reader_.number<uint16_t>();
      reader_.number<uint32_t>();
      directory.offset = reader_.number<uint32_t>();
      const bool zip64 = position >= kLocator64Bytes && signature_at(position - kLocator64Bytes) == kLocator64Signature;
      return zip64 ? directory64(position - kLocator64Bytes) : directory;
    }
    throw_input_error(
        "{}: expected a zip file as torch.save writes it, found no zip directory (cut off, or another format)",
        origin_);
  }

  Directory directory64(uint64_t locator) {
    reader_.seek(locator + 8);
    const auto end = reader_.number<uint64_t>();
    if (signature_at(end) != kEnd64Signature) {
      throw_input_error("{}: the zip64 directory is not where its locator says", origin_);
    }
    reader_.seek(end + 32);
    Directory directory;
    directory.num_entries = reader_.number<uint64_t>();
    reader_.number<uint64_t>();
    directory.offset = reader_.number<uint64_t>();
    return directory;
  }

  Entry read_entry() {
    if (reader_.number<uint32_t>() != kEntrySignature) {
      throw_input_error("{}: the zip directory holds fewer entries than it says", origin_);
    }
    Entry entry;
    reader_.take(4);  // versions
    entry.flags = reader_.number<uint16_t>();
    entry.method = reader_.number<uint16_t>();
    reader_.take(8);  // time, checksum
    entry.stored_bytes = reader_.number<uint32_t>();
    entry.plain_bytes = reader_.number<uint32_t>();
    const auto name_bytes = reader_.number<uint16_t>();
    const auto extra_bytes = reader_.number<uint16_t>();
    const auto comment_bytes = reader_.number<uint16_t>();
    reader_.take(8);  // disk, attributes
    entry.offset = reader_.number<uint32_t>();
    entry.name = reader_.text(name_bytes);
    read_extra(reader_.take(extra_bytes), entry);
    reader_.take(comment_bytes);
    return entry;
  }

  // Fields that do not fit 32 bits follow in the zip64 extra, in this order.
  void read_extra(std::span<const std::byte> bytes, Entry& entry) const {
    ByteReader extra(bytes, origin_);
    while (extra.num_left() >= 4) {
      const auto kind = extra.number<uint16_t>();
      ByteReader field(extra.take(extra.number<uint16_t>()), origin_);
      for (uint64_t* value : {&entry.plain_bytes, &entry.stored_bytes, &entry.offset}) {
        if (kind == kZip64Extra && *value == 0xFFFFFFFF) {
          *value = field.number<uint64_t>();
        }
      }
    }
  }

  std::span<const std::byte> data_of(const Entry& entry) {
    if (entry.method != 0 || (entry.flags & 1) != 0 || entry.stored_bytes != entry.plain_bytes) {
      throw_input_error(
          "{}: entry {} is compressed or encrypted, expected it stored as it is", origin_, printable(entry.name));
    }
    if (signature_at(entry.offset) != kLocalSignature) {
      throw_input_error("{}: entry {} is not where the directory says", origin_, printable(entry.name));
    }
    reader_.take(22);
    const auto name_bytes = reader_.number<uint16_t>();
    const auto extra_bytes = reader_.number<uint16_t>();
    reader_.take(uint64_t{name_bytes} + extra_bytes);
    return reader_.take(entry.stored_bytes);
  }

  std::span<const std::byte> bytes_;
  std::string origin_;
  ByteReader reader_;
};

}  // namespace

ZipFile read_zip(const std::filesystem::path& path) {
  const auto file = model::MappedFile::open(path);
  const auto bytes = file->bytes();
  return {.entries = ZipReader(bytes, path.string()).entries(),
          .owner = file,
          .num_bytes = static_cast<int64_t>(bytes.size())};
}

}  // namespace golden
