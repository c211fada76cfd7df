#include "gpu/kernels/cublas_linear.cuh"

#include <cublasLt.h>
#include <dlfcn.h>

#include <type_traits>

#include "gpu/engine/cuda_handles.cuh"
#include "gpu/kernels/fp8_linear_sm90.cuh"

namespace gpu::DSV3_BACKEND {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what NVIDIA's guide advises for Hopper

void check_status(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(std::string("cuBLASLt: ") + what + ": status " + std::to_string(static_cast<int>(status)));
  }
}

void* open_library() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw DeviceError(std::string("cuBLASLt cannot be loaded: ") + dlerror());
  }
  return handle;
}

// One of the library's objects, given back when it ends.
template <typename Handle>
using Object = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

}  // namespace

// Stays open as long as the process.
struct CublasLinear::Library {
  template <typename Function>
  Function* find(const char* name) const {
    auto* const found = reinterpret_cast<Function*>(dlsym(object, name));
    if (found == nullptr) {
      throw DeviceError(std::string("cuBLASLt cannot be used: its library has no ") + name);
    }
    return found;
  }

  void* object = open_library();
#define DSV3_CUBLASLT(function) \
  decltype(&cublasLt##function) function = find<decltype(cublasLt##function)>("cublasLt" #function)
  DSV3_CUBLASLT(GetVersion);
  DSV3_CUBLASLT(Create);
  DSV3_CUBLASLT(Destroy);
  DSV3_CUBLASLT(MatmulDescCreate);
  DSV3_CUBLASLT(MatmulDescDestroy);
  DSV3_CUBLASLT(MatmulDescSetAttribute);
  DSV3_CUBLASLT(MatrixLayoutCreate);
  DSV3_CUBLASLT(MatrixLayoutDestroy);
  DSV3_CUBLASLT(MatmulPreferenceCreate);
  DSV3_CUBLASLT(MatmulPreferenceDestroy);
  DSV3_CUBLASLT(MatmulPreferenceSetAttribute);
  DSV3_CUBLASLT(MatmulAlgoGetHeuristic);
  DSV3_CUBLASLT(Matmul);
#undef DSV3_CUBLASLT
  Object<cublasLtHandle_t> context{nullptr, Destroy};
  DeviceBytes workspace;

  // A matrix whose columns lie one behind another.
  [[nodiscard]] Object<cublasLtMatrixLayout_t> columns(cudaDataType type, int64_t num_rows, int64_t num_columns) const {
    cublasLtMatrixLayout_t layout = nullptr;
    check_status(MatrixLayoutCreate(
                     &layout, type, static_cast<uint64_t>(num_rows), static_cast<uint64_t>(num_columns), num_rows),
                 "cublasLtMatrixLayoutCreate");
    return {layout, MatrixLayoutDestroy};
  }
};

CublasLinear::CublasLinear() : library_(std::make_unique<Library>()) {
  cublasLtHandle_t context = nullptr;
  check_status(library_->Create(&context), "cublasLtCreate, which needs a device");
  library_->context.reset(context);
  library_->workspace = allocate_device(kWorkspaceBytes);
}

CublasLinear::~CublasLinear() = default;

std::string CublasLinear::version() const {
  return std::to_string(library_->GetVersion());
}

// The library counts in columns: y^T [out_dim, num_tokens] is W [in_dim, out_dim] transposed times x [in_dim, num_tokens].
void CublasLinear::run(Stream stream, const Fp8LinearSm90Arguments& arguments) const {
  require(arguments.group_of_tile == nullptr && arguments.num_groups == 1, "cublas_linear: one group");
  require(arguments.num_tokens % 4 == 0 && arguments.out_dim % 4 == 0,
          "cublas_linear: num_tokens and out_dim have to be multiples of 4");
  require(arguments.in_dim % 512 == 0, "cublas_linear: in_dim has to be a multiple of 512");
  require(arguments.x_scale_stride == arguments.num_tokens, "cublas_linear: x_scale_stride has to be num_tokens");
  const Library& lib = *library_;
  cublasLtMatmulDesc_t created = nullptr;
  check_status(lib.MatmulDescCreate(&created, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const Object<cublasLtMatmulDesc_t> product(created, lib.MatmulDescDestroy);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check_status(lib.MatmulDescSetAttribute(product.get(), attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, arguments.weight_scale);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, arguments.x_scale);
  const auto weight = lib.columns(CUDA_R_8F_E4M3, arguments.in_dim, arguments.out_dim);
  const auto x = lib.columns(CUDA_R_8F_E4M3, arguments.in_dim, arguments.num_tokens);
  const auto y = lib.columns(CUDA_R_16BF, arguments.out_dim, arguments.num_tokens);

  cublasLtMatmulPreference_t preferred = nullptr;
  check_status(lib.MatmulPreferenceCreate(&preferred), "cublasLtMatmulPreferenceCreate");
  const Object<cublasLtMatmulPreference_t> preference(preferred, lib.MatmulPreferenceDestroy);
  check_status(
      lib.MatmulPreferenceSetAttribute(
          preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
      "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t best = {};
  int num_found = 0;
  check_status(lib.MatmulAlgoGetHeuristic(lib.context.get(),
                                          product.get(),
                                          weight.get(),
                                          x.get(),
                                          y.get(),
                                          y.get(),
                                          preference.get(),
                                          1,
                                          &best,
                                          &num_found),
               "no algorithm with scales of 1x128 and 128x128 blocks, which only Hopper has");
  const float one = 1;
  const float zero = 0;
  check_status(lib.Matmul(lib.context.get(),
                          product.get(),
                          &one,
                          arguments.weight,
                          weight.get(),
                          arguments.x,
                          x.get(),
                          &zero,
                          arguments.y,
                          y.get(),
                          arguments.y,
                          y.get(),
                          &best.algo,
                          library_->workspace.get(),
                          static_cast<size_t>(kWorkspaceBytes),
                          stream.handle),
               "cublasLtMatmul");
}

}  // namespace gpu::DSV3_BACKEND
