#include "model/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <random>

#include "tests/model/hostile.hpp"
#include "tests/temp_dir.hpp"

namespace model {
namespace {

std::string with_length(const std::string& header) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(header.size() >> (8 * i));
  }
  return bytes + header;
}

// Headers of the format's own writers end at a multiple of 8, as this one.
std::string padded(std::string header) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

// Two tensors, 12 bytes of data: a = F32 [2] = {1, -2}, b = BF16 [1, 2] = {1, 2}.
const std::string kHeaderA = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
const std::string kHeaderB = R"("b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]})";
const std::string kData("\0\0\x80\x3f\0\0\0\xc0\x80\x3f\0\x40", 12);

std::string valid_file() {
  return with_length("{" + kHeaderA + "," + kHeaderB + "}") + kData;
}

std::string refusal(const std::string& bytes) {
  const TempDir dir;
  write_bytes(dir / "x.safetensors", bytes);
  const std::string message = refusal_of([&] { (void)read_safetensors(dir / "x.safetensors"); });
  EXPECT_NE(message.find("x.safetensors"), std::string::npos) << message;
  return message;
}

TEST(Safetensors, HandWrittenFile_IsRead) {
  const TempDir dir;
  write_bytes(dir / "x.safetensors", valid_file());
  const SafetensorsFile file = read_safetensors(dir / "x.safetensors");
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors.at("a").shape, (Shape{2}));
  EXPECT_EQ(to_double(file.tensors.at("a")), (std::vector<double>{1, -2}));
  EXPECT_EQ(file.tensors.at("b").shape, (Shape{1, 2}));
  EXPECT_EQ(to_double(file.tensors.at("b")), (std::vector<double>{1, 2}));
  EXPECT_TRUE(file.metadata.empty());
  EXPECT_EQ(file.header, "{" + kHeaderA + "," + kHeaderB + "}");
}

TEST(Safetensors, Views_OutliveTheFileStruct) {
  const TempDir dir;
  write_bytes(dir / "x.safetensors", valid_file());
  const TensorView view = read_safetensors(dir / "x.safetensors").tensors.at("a");
  EXPECT_EQ(view.codes<float>()[1], -2.0f);
}

TEST(Safetensors, UnalignedData_CanBeReadAsCodes) {
  const TempDir dir;
  const std::string header =
      R"({"u":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"f":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})";
  write_bytes(dir / "x.safetensors", with_length(padded(header)) + std::string("\1\2\3\0\0\x80\x3f", 7));
  const SafetensorsFile file = read_safetensors(dir / "x.safetensors");
  EXPECT_EQ(file.tensors.at("u").codes<uint8_t>()[2], 3);
  EXPECT_EQ(file.tensors.at("f").codes<float>()[0], 1.0f);
}

TEST(Safetensors, UnalignedDataTooLargeToCopy_IsRefused) {
  const TempDir dir;
  const std::string header =
      R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F32","shape":[68719476736],"data_offsets":[1,274877906945]}})";
  write_bytes(dir / "x.safetensors", with_length(padded(header)));
  std::filesystem::resize_file(dir / "x.safetensors", 8 + padded(header).size() + 274877906945);  // sparse
  const std::string message = refusal_of([&] { (void)read_safetensors(dir / "x.safetensors"); });
  expect_fragment(message, "tensor f does not begin at a multiple of its element size");
}

TEST(Safetensors, ScalarsAndEmptyTensors_AreRead) {
  const TempDir dir;
  const std::string header =
      R"({"none":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"one":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})";
  write_bytes(dir / "x.safetensors", with_length(header) + "\5");
  const SafetensorsFile file = read_safetensors(dir / "x.safetensors");
  EXPECT_EQ(file.tensors.at("none").size(), 0);
  EXPECT_EQ(to_double(file.tensors.at("one")), (std::vector<double>{5}));
}

TEST(Safetensors, HostileHeader_IsRefusedByName) {
  const std::string c = R"("c":{"dtype":"U8","shape":[4],"data_offsets":)";
  const struct {
    std::string header;
    std::string fragment;
  } cases[] = {
      {"", "not valid JSON"},
      {"{", "not valid JSON"},
      {"[]", "must be a JSON object"},
      {"{" + kHeaderA + "," + kHeaderB + "} x", "not valid JSON"},
      {"{" + kHeaderA + "," + kHeaderA + "}", "name a appears twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[3],"data_offsets":[0,12]}})", "name dtype appears twice"},
      {"{" + std::string(100000, '[') + "}", "not valid JSON"},
      {R"({"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}", "nested deeper than 3"},
      {R"({"a":7})", "tensor a: expected an object of dtype, shape and data_offsets, found 7"},
      {R"({"a":{"dtype":"F32","shape":[3]}})", "tensor a: expected an object of dtype"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12],"x":1}})", "tensor a: expected an object of dtype"},
      {R"({"a":{"dtype":"F8_E5M2","shape":[12],"data_offsets":[0,12]}})", "tensor a: unknown dtype \"F8_E5M2"},
      {R"({"a":{"dtype":5,"shape":[12],"data_offsets":[0,12]}})", "tensor a: unknown dtype 5"},
      {R"({"a":{"dtype":"F32","shape":[-3],"data_offsets":[0,12]}})", "tensor a: shape must be non-negative integers"},
      {R"({"a":{"dtype":"F32","shape":[3.0],"data_offsets":[0,12]}})", "tensor a: shape must be"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,12]}})", "tensor a: shape must be"},
      {R"({"a":{"dtype":"F32","shape":3,"data_offsets":[0,12]}})", "tensor a: shape must be"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "too many elements"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", "too many elements"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12.5]}})", "tensor a: data_offsets must be two"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[-4,8]}})", "tensor a: data_offsets must be two"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[12,0]}})", "tensor a: data_offsets must be two ascending"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,4,12]}})", "tensor a: data_offsets must be two"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       "F32 [3] takes 12 bytes, but its data_offsets span 8"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)" + c + "[6,10]}}",
       "tensor c begins at data byte 6 and overlaps"},
      {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]},)" + c + "[8,12]}}",
       "no tensor covers data bytes 7 to 8"},
      {"{" + c + "[8,12]}}", "no tensor covers data bytes 0 to 8"},
      {"{" + c + "[0,4]}}", "8 bytes follow the last tensor"},
      {"{}", "12 bytes follow the last tensor"},
      {"{" + c + "[12,16]}}", "but its header promises"},
      {"{" + c + "[9223372036854775803,9223372036854775807]}}", "but its header promises"},
      {R"({"__metadata__":[]})", "__metadata__ must be an object of strings"},
      {R"({"__metadata__":{"k":1}})", "__metadata__ must be an object of strings, but k is not one"},
      {R"({"a\n\u0007":1})", "tensor a\\x0a\\x07: expected"},
      {"{\"" + std::string(100000, 'n') + "\":1}", "nnn...: expected an object"},
      {"{\"\xff\":1}", "not valid JSON"},
      {R"({"a":1e999})", "not valid JSON"},
  };
  for (const auto& [header, fragment] : cases) {
    const std::string message = refusal(with_length(header) + kData);
    expect_fragment(message, fragment);
  }
}

TEST(Safetensors, HostileLength_IsRefused) {
  EXPECT_NE(refusal("").find("0 bytes, expected at least 8"), std::string::npos);
  EXPECT_NE(refusal("1234567").find("7 bytes, expected at least 8"), std::string::npos);
  EXPECT_NE(refusal(std::string(8, '\xff') + "{}").find("file ends at byte 10"), std::string::npos);
  EXPECT_NE(refusal(std::string("\3\0\0\0\0\0\0\0{}", 10)).find("promise a header of 3 bytes"), std::string::npos);
}

TEST(Safetensors, AbsurdlyLongHeader_IsRefused) {
  const TempDir dir;
  write_bytes(dir / "x.safetensors", std::string("\1\xe1\xf5\5\0\0\0\0{", 9));  // 100,000,001 bytes
  std::filesystem::resize_file(dir / "x.safetensors", 200'000'000);             // sparse
  const std::string message = refusal_of([&] { (void)read_safetensors(dir / "x.safetensors"); });
  EXPECT_NE(message.find("header of 100000001 bytes, expected at most 32000000"), std::string::npos) << message;
}

TEST(Safetensors, MillionsOfValues_AreRefusedEarly) {
  std::string header = R"({"a":{"shape":[1)";
  for (int i = 0; i < 1'500'000; ++i) {
    header += ",1";
  }
  EXPECT_NE(refusal(with_length(header + "]}}")).find("more than 1500000 JSON values"), std::string::npos);
}

TEST(Safetensors, TruncationAtEveryByte_IsRefused) {
  const std::string bytes = valid_file();
  for (size_t length = 0; length < bytes.size(); ++length) {
    (void)refusal(bytes.substr(0, length));
  }
  EXPECT_NE(refusal(bytes.substr(0, bytes.size() - 1)).find("file ends at byte"), std::string::npos);
  EXPECT_NE(refusal(bytes + "x").find("1 bytes follow the last tensor"), std::string::npos);
}

TEST(Safetensors, WhatIsNotARegularFile_IsRefused) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  const auto refusal_at = [](const std::filesystem::path& path) {
    return refusal_of([&] { (void)read_safetensors(path); });
  };
  EXPECT_NE(refusal_at(dir / "absent").find("absent: cannot open: No such file"), std::string::npos);
  EXPECT_NE(refusal_at(dir.path()).find("not a regular file"), std::string::npos);
  EXPECT_NE(refusal_at(dir / "pipe").find("not a regular file"), std::string::npos);
  EXPECT_NE(refusal_at("/dev/zero").find("not a regular file"), std::string::npos);
}

// Any damage to the header leads to a refusal or to tensors whose bytes lie inside the file.
TEST(Safetensors, RandomDamage_EndsInAnInputErrorOrInValidViews) {
  const TempDir dir;
  const std::string valid = valid_file();
  std::mt19937 random(20240501);
  const std::string alphabet = "{}[]\",:0123456789-.eE\\abtsF\n\xff";
  int num_refused = 0;
  for (int iteration = 0; iteration < 2000; ++iteration) {
    std::string bytes = valid;
    const int num_changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < num_changes; ++i) {
      const size_t position = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[position] = static_cast<char>(random()); break;
        case 1: bytes[position] = alphabet[random() % alphabet.size()]; break;
        case 2: bytes.erase(position, 1 + random() % 4); break;
        default: bytes.insert(position, 1, alphabet[random() % alphabet.size()]); break;
      }
      if (bytes.empty()) {
        bytes = valid;
      }
    }
    write_bytes(dir / "x.safetensors", bytes);
    try {
      for (const auto& [name, tensor] : read_safetensors(dir / "x.safetensors").tensors) {
        ASSERT_EQ(to_double(tensor).size(), static_cast<size_t>(tensor.size())) << name;
      }
    } catch (const InputError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 1000);
}

TEST(Safetensors, WhatIsWritten_IsReadBack) {
  const TempDir dir;
  const TensorView first = make_tensor<float>(DType::kF32, {2, 1}, {1.5f, -0.0f});
  const TensorView second = make_tensor<uint8_t>(DType::kF8E4M3, {3}, {0x7F, 0x80, 0x38});
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"quote", "\"\n"}};
  write_safetensors(dir / "x.safetensors", {{"z", first}, {"a", second}}, metadata);
  const SafetensorsFile file = read_safetensors(dir / "x.safetensors");
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors.at("z").shape, first.shape);
  EXPECT_EQ(to_double(file.tensors.at("z")), (std::vector<double>{1.5, 0}));
  EXPECT_EQ(file.tensors.at("a").dtype, DType::kF8E4M3);
  EXPECT_EQ(file.tensors.at("a").codes<uint8_t>()[0], 0x7F);
  EXPECT_EQ(file.header.size() % 8, 0u);
}

TEST(Safetensors, TensorsAreLaidOutInTheGivenOrder) {
  const TempDir dir;
  const TensorView one = make_tensor<uint8_t>(DType::kU8, {1}, {1});
  const TensorView two = make_tensor<uint8_t>(DType::kU8, {1}, {2});
  write_safetensors(dir / "x.safetensors", {{"z", one}, {"a", two}}, {});
  const std::string bytes = read_bytes(dir / "x.safetensors");
  EXPECT_EQ(bytes.substr(bytes.size() - 2), "\1\2");
}

TEST(Safetensors, Writing_ReplacesTheOldFileAndLeavesNoTemporary) {
  const TempDir dir;
  write_bytes(dir / "x.safetensors", "old");
  write_safetensors(dir / "x.safetensors", {}, {});
  EXPECT_TRUE(read_safetensors(dir / "x.safetensors").tensors.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(Safetensors, PlaceThatCannotBeWritten_IsNamed) {
  const TempDir dir;
  const auto refusal_at = [](const std::filesystem::path& path) {
    return refusal_of([&] { write_safetensors(path, {}, {}); });
  };
  EXPECT_NE(refusal_at(dir / "no/x").find("no/x: cannot write: No such file or directory"), std::string::npos);
  EXPECT_NE(refusal_at(dir.path()).find("cannot write: not a regular file"), std::string::npos);
  EXPECT_NE(refusal_at("/dev/null").find("cannot write: not a regular file"), std::string::npos);
}

TEST(Safetensors, TextThatIsNotUtf8_CannotBeWritten) {
  const TempDir dir;
  const std::string message = refusal_of([&] { write_safetensors(dir / "x", {}, {{"k", "\xff"}}); });
  EXPECT_NE(message.find("not UTF-8"), std::string::npos) << message;
}

TEST(Safetensors, FullDisk_LeavesTheOldFileAndNoTemporary) {
  const TempDir dir;
  write_bytes(dir / "x.safetensors", "old");
  const TensorView tensor = make_tensor(DType::kU8, {1 << 16}, std::vector<uint8_t>(1 << 16));
  // A limit on the size of files stands for the full disk.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{1 << 12, before.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string message = refusal_of([&] { write_safetensors(dir / "x.safetensors", {{"t", tensor}}, {}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(message.find("x.safetensors: cannot write: File too large"), std::string::npos) << message;
  EXPECT_EQ(read_bytes(dir / "x.safetensors"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

}  // namespace
}  // namespace model
