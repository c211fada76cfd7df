# dsv3_kernel_mutant(<name> <kernel> FIND <line> REPLACE <text>): the kernel's header with one line changed, as mutants/<name>.cuh in the
# generated headers, in namespace gpu::DSV3_BACKEND::<name>. It takes the arguments of the original. The line has to be there once.
function(dsv3_kernel_mutant name kernel)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "FIND;REPLACE" "")
  set(source ${PROJECT_SOURCE_DIR}/gpu/kernels/${kernel}.cuh)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} text)
  string(FIND "${text}" "${ARG_FIND}" first)
  string(FIND "${text}" "${ARG_FIND}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "mutant ${name}: '${ARG_FIND}' has to be in ${source} once")
  endif()
  string(REPLACE "${ARG_FIND}" "${ARG_REPLACE}" text "${text}")
  # The arguments stay the original's.
  string(FIND "${text}" "namespace gpu::DSV3_BACKEND {" begin)
  string(SUBSTRING "${text}" ${begin} -1 text)
  string(REPLACE "namespace gpu::DSV3_BACKEND {" "namespace gpu::DSV3_BACKEND::${name} {" text "${text}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/mutants/${name}.cuh CONTENT
    "#pragma once\n\n#include \"gpu/kernels/${kernel}.cuh\"\n\n@text@" @ONLY)
endfunction()
