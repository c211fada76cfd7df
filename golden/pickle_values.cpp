#include "golden/pickle_values.hpp"

namespace golden::pickled {

using model::DType;

const std::map<std::string, std::optional<DType>>& typed_globals() {
  static const std::map<std::string, std::optional<DType>> globals{
      {"torch.DoubleStorage", DType::kF64},
      {"torch.FloatStorage", DType::kF32},
      {"torch.BFloat16Storage", DType::kBF16},
      {"torch.HalfStorage", DType::kF16},
      {"torch.LongStorage", DType::kI64},
      {"torch.IntStorage", DType::kI32},
      {"torch.ByteStorage", DType::kU8},
      {"torch.BoolStorage", DType::kU8},
      {"torch.Float8_e4m3fnStorage", DType::kF8E4M3},
      {"torch.storage.UntypedStorage", std::nullopt},
      {"torch.float64", DType::kF64},
      {"torch.float32", DType::kF32},
      {"torch.bfloat16", DType::kBF16},
      {"torch.float16", DType::kF16},
      {"torch.int64", DType::kI64},
      {"torch.int32", DType::kI32},
      {"torch.uint8", DType::kU8},
      {"torch.bool", DType::kU8},
      {"torch.float8_e4m3fn", DType::kF8E4M3},
      {"torch.float8_e8m0fnu", DType::kF8E8M0},
  };
  return globals;
}

}  // namespace golden::pickled
