# DSV3_CUDA: compile the kernels for the device as well. Off by default: everything is tested without a toolkit.
# nvcc of CUDA 12.8 or later. Host code in .cu files cannot use fmt: nvcc does not evaluate its format strings at compile time.
option(DSV3_CUDA "Compile the kernels with nvcc" OFF)
if(NOT DSV3_CUDA)
  return()
endif()
# What the kernels are written for.
set(DSV3_CUDA_ARCHITECTURES "90a-real" CACHE STRING "Architectures for nvcc, for example 80-real;90a-real")
set(CMAKE_CUDA_ARCHITECTURES ${DSV3_CUDA_ARCHITECTURES})
enable_language(CUDA)
# CMake 3.25.1 (Debian 12) does not know that nvcc has C++20 and fails when generating; later versions do.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)
