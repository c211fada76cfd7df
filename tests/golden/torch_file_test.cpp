// A file that PyTorch 2.15 wrote, and files that no torch.save would write.
#include "golden/torch_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tests/golden/torch_fixture.hpp"
#include "tests/model/hostile.hpp"
#include "tests/paths.hpp"
#include "tests/temp_dir.hpp"

namespace {

using namespace torch_fixture;
using model::DType;
using model::Shape;
using Values = std::vector<double>;

std::map<std::string, model::TensorView> read_bytes_as_torch(const std::string& bytes) {
  const TempDir folder;
  write_bytes(folder / "x.pt", bytes);
  const auto tensors = golden::read_torch_file(folder / "x.pt");
  return {tensors.begin(), tensors.end()};
}

std::string refusal(const std::string& bytes) {
  return refusal_of([&] { read_bytes_as_torch(bytes); });
}

const std::string kSixFloats(6 * 4, '\0');

std::string refusal_of_tensor(const TensorArguments& arguments) {
  return refusal(torch_file(tensor(arguments), {{"0", kSixFloats}}));
}

// tests/golden/data/torch_2_15.pt: torch.save of an OrderedDict; n = torch.arange(6.).reshape(2, 3) and n.to(dtype) under the
// dtype's name, n > 2, n.t(), n[:, 2], n[:1].expand(2, 3), Parameter(n), tensor(5.), zeros(0, 3), (n, [n + 1, None]), and a
// dictionary of an int, float, bool, str and n[1] under the key 4.
TEST(TorchFile, APyTorchFileGivesItsTensors) {
  const auto list = golden::read_torch_file(source_dir() / "tests/golden/data/torch_2_15.pt");
  const std::map<std::string, model::TensorView> tensors(list.begin(), list.end());
  EXPECT_EQ(tensors.size(), 18U);
  const std::map<std::string, DType> dtypes{{"float64", DType::kF64},
                                            {"float32", DType::kF32},
                                            {"bfloat16", DType::kBF16},
                                            {"float16", DType::kF16},
                                            {"int64", DType::kI64},
                                            {"int32", DType::kI32},
                                            {"float8_e4m3fn", DType::kF8E4M3},
                                            {"parameter", DType::kF32},
                                            {"pair[0]", DType::kF32}};
  for (const auto& [name, dtype] : dtypes) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    EXPECT_EQ(tensors.at(name).dtype, dtype) << name;
    EXPECT_EQ(tensors.at(name).shape, (Shape{2, 3})) << name;
    EXPECT_EQ(model::to_double(tensors.at(name)), (Values{0, 1, 2, 3, 4, 5})) << name;
  }
  const auto flags = tensors.at("bool").codes<uint8_t>();
  EXPECT_EQ(std::vector<uint8_t>(flags.begin(), flags.end()), (std::vector<uint8_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(tensors.at("uint8").codes<uint8_t>()[5], 5);
  EXPECT_EQ(tensors.at("transposed").shape, (Shape{3, 2}));
  EXPECT_EQ(model::to_double(tensors.at("transposed")), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(model::to_double(tensors.at("last_column")), (Values{2, 5}));
  EXPECT_EQ(model::to_double(tensors.at("expanded")), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(tensors.at("scalar").shape, Shape{});
  EXPECT_EQ(model::to_double(tensors.at("scalar")), Values{5});
  EXPECT_EQ(tensors.at("empty").shape, (Shape{0, 3}));
  EXPECT_EQ(model::to_double(tensors.at("pair[1][0]")), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(model::to_double(tensors.at("meta.4")), (Values{3, 4, 5}));
}

TEST(TorchFile, EveryCutOfAPyTorchFileIsRefused) {
  const std::string whole = read_bytes(source_dir() / "tests/golden/data/torch_2_15.pt");
  for (size_t length = 0; length < whole.size(); length += 7) {
    EXPECT_NE(refusal(whole.substr(0, length)), "") << length;
  }
}

TEST(TorchFile, OtherGlobalsAreRefusedByName) {
  const std::string call = global("os", "system") + "(" + text("touch /tmp/never") + "tR";
  expect_fragment(refusal(torch_file(call, {})),
                  "x.pt: refuses to load os.system: only tensors and plain containers are read");
  const std::string stack_global = text("builtins") + text("eval") + "\x93";
  expect_fragment(refusal(torch_file(stack_global, {})), "refuses to load builtins.eval");
  expect_fragment(refusal(torch_file(global("torch", "load"), {})), "refuses to load torch.load");
  expect_fragment(refusal(torch_file(global("a\x1b[31m", "b"), {})), "refuses to load a?[31m.b");
}

TEST(TorchFile, OtherOpcodesAreRefused) {
  for (const char* opcode : {"i", "o", "\x81", "\x92", "\x82", "P", "B", "2"}) {
    expect_fragment(refusal(torch_file(opcode, {})), "refuses pickle opcode 0x");
  }
}

TEST(TorchFile, TensorsStayInTheirStorage) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_EQ(read_bytes_as_torch(
                torch_file(tensor({.storage_len = 6, .offset = 3, .shape = {3}, .strides = {1}}), {{"0", kSixFloats}}))
                .size(),
            1U);
  for (const TensorArguments& bad :
       std::vector<TensorArguments>{{.storage_len = 6, .offset = 4, .shape = {3}, .strides = {1}},
                                    {.storage_len = 6, .offset = -1, .shape = {3}, .strides = {1}},
                                    {.storage_len = 6, .shape = {2, 3}, .strides = {4, 1}},
                                    {.storage_len = 6, .offset = 5, .shape = {3}, .strides = {-1}},
                                    {.storage_len = 6, .shape = {-2, -3}, .strides = {3, 1}},
                                    {.storage_len = 6, .shape = {kHuge, 4}, .strides = {0, 0}},
                                    {.storage_len = 6, .shape = {3}, .strides = {kHuge}},
                                    {.storage_len = 6, .offset = kHuge, .shape = {3}, .strides = {kHuge}},
                                    {.storage_len = 6, .shape = {2, 3}, .strides = {1}},
                                    {.storage_len = 7, .shape = {7}, .strides = {1}},
                                    {.storage_len = -6, .shape = {3}, .strides = {1}},
                                    {.key = "1", .storage_len = 6, .shape = {3}, .strides = {1}},
                                    {.key = "../data.pkl", .storage_len = 1, .shape = {1}, .strides = {1}}}) {
    EXPECT_NE(refusal_of_tensor(bad), "");
  }
  expect_fragment(refusal_of_tensor({.storage_len = 6, .shape = {1 << 30}, .strides = {0}}), "more memory");
}

TEST(TorchFile, BrokenPicklesAreRefused) {
  const std::string bomb = [] {
    std::string layers = std::string("]q") + std::string(1, '\0');  // list 0; list i holds list i - 1 ten times
    for (char i = 1; i < 30; ++i) {
      layers += "](";
      for (int k = 0; k < 10; ++k) {
        layers += std::string("h") + static_cast<char>(i - 1);
      }
      layers += std::string("eq") + i;
    }
    return layers;
  }();
  const std::string cycle = std::string("]q") + std::string("\x01") + "h" + std::string("\x01") + "a";
  for (const std::string& pickle :
       std::vector<std::string>{"",
                                "t",
                                "R",
                                "a",
                                "Na",
                                "(",
                                "}(Nu",
                                "}NNNs",
                                "hz",
                                std::string("q") + std::string("\x01"),
                                std::string("\x8d") + raw(~uint64_t{0}),
                                std::string("X") + raw(~uint32_t{0}),
                                std::string("\x8a\x09") + std::string(9, '\1'),
                                "NQ",
                                ")Q",
                                global("collections", "OrderedDict") + "NR",
                                global("torch._utils", "_rebuild_tensor_v2") + ")R",
                                std::string("(") + text("storage") + global("torch", "float32"),
                                std::string(100000, ']') + std::string(99999, 'a'),
                                std::string(3000000, ']'),
                                cycle,
                                bomb}) {
    EXPECT_NE(refusal(torch_file(pickle, {})), "") << pickle.substr(0, 40);
  }
}

TEST(TorchFile, BrokenArchivesAreRefused) {
  const std::string pickle = "\x80\x02}.";
  EXPECT_TRUE(read_bytes_as_torch(zip_of({{"x/data.pkl", pickle}})).empty());
  expect_fragment(refusal(zip_of({{"x/data.pkl", pickle}}, 8)), "compressed");
  expect_fragment(refusal(zip_of({{"x/other", pickle}})), "no data.pkl");
  expect_fragment(refusal(zip_of({{"x/data.pkl", pickle}, {"x/data.pkl", pickle}})), "two entries");
  expect_fragment(refusal(zip_of({{"x/data.pkl", pickle}, {"x/byteorder", "big"}})), "little-endian");
  std::string offset_outside = zip_of({{"x/data.pkl", pickle}});
  offset_outside.replace(offset_outside.size() - 6, 4, raw<uint32_t>(0xFFFFFF));
  EXPECT_NE(refusal(offset_outside), "");
  std::string too_many = zip_of({{"x/data.pkl", pickle}});
  too_many.replace(too_many.size() - 12, 2, raw<uint16_t>(9));
  EXPECT_NE(refusal(too_many), "");
}

TEST(TorchFile, Zip64DirectoriesAreRead) {
  std::string file =
      zip_of({{"x/data.pkl", std::string("\x80\x02") + tensor({.storage_len = 6, .shape = {6}, .strides = {1}}) + "."},
              {"x/data/0", kSixFloats}});
  const std::string end = file.substr(file.size() - 22);
  file.resize(file.size() - 22);
  const uint64_t record = file.size();
  uint32_t directory = 0;
  std::memcpy(&directory, end.data() + 16, 4);
  file += raw<uint32_t>(0x06064b50) + raw<uint64_t>(44) + raw<uint32_t>(0) + raw<uint64_t>(0) + raw<uint64_t>(2) +
          raw<uint64_t>(2) + raw<uint64_t>(0) + raw<uint64_t>(directory);
  file += raw<uint32_t>(0x07064b50) + raw<uint32_t>(0) + raw(record) + raw<uint32_t>(1);
  file += raw<uint32_t>(0x06054b50) + raw<uint32_t>(0) + std::string(12, '\xFF') + raw<uint16_t>(0);
  EXPECT_EQ(read_bytes_as_torch(file).size(), 1U);
}

}  // namespace
