# Kernels with one line changed, compiled beside the true ones. What the patched header holds lives in a namespace of its own, so that one
# program has room for any number of mutants; everything but the one file is included from the source tree.

# dsv3_kernel_mutant(<target> ID <id> KERNEL <launcher> [HEADER <file>] [FILE <file>] FIND <text> REPLACE <text> BREAKS <sentence> OP <id>
#                    [CASES <fixture>] [RACE])
# Adds to <target> the object of one mutant and a row of its table (tools/device/kernel_mutant.hpp says what the fields mean).
# HEADER of gpu/kernels has the launcher (default: <launcher>.cuh); FILE is what is changed, itself or something that it includes (default:
# itself). FIND has to be in there once: otherwise building fails, and the list needs an update.
# Without FIND nothing is changed: the same path without a fault.
function(dsv3_kernel_mutant target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "RACE" "ID;KERNEL;HEADER;FILE;FIND;REPLACE;BREAKS;OP;CASES" "")
  if(NOT ARG_HEADER)
    set(ARG_HEADER ${ARG_KERNEL}.cuh)
  endif()
  if(NOT ARG_FILE)
    set(ARG_FILE ${ARG_HEADER})
  endif()
  string(REPLACE "-" "_" name ${ARG_ID})
  set(source ${PROJECT_SOURCE_DIR}/gpu/kernels/${ARG_FILE})
  set(dir ${CMAKE_BINARY_DIR}/generated/mutants/${name})
  set(patched ${dir}/gpu/kernels/${ARG_FILE})
  file(CONFIGURE OUTPUT ${dir}/find.txt CONTENT "${ARG_FIND}" @ONLY)
  file(CONFIGURE OUTPUT ${dir}/replace.txt CONTENT "${ARG_REPLACE}" @ONLY)
  add_custom_command(OUTPUT ${patched}
    COMMAND ${CMAKE_COMMAND} -DID=${ARG_ID} -DSOURCE=${source} -DDIR=${dir} -DOUT=${patched}
            -P ${PROJECT_SOURCE_DIR}/cmake/mutate.cmake
    DEPENDS ${source} ${dir}/find.txt ${dir}/replace.txt ${PROJECT_SOURCE_DIR}/cmake/mutate.cmake
    VERBATIM)
  add_library(mutant_${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tools/device/kernel_mutant.cpp ${patched})
  target_link_libraries(mutant_${name} PRIVATE gpu)
  target_compile_definitions(mutant_${name} PRIVATE DSV3_BACKEND=${name} DSV3_MUTANT_LAUNCHER=${ARG_KERNEL}
    DSV3_MUTANT_HEADER="gpu/kernels/${ARG_HEADER}")
  # Searched for quoted includes before every -I.
  target_compile_options(mutant_${name} PRIVATE -iquote ${dir} $<$<CONFIG:Release>:-O1>)
  if(ARG_RACE)
    target_compile_options(mutant_${name} PRIVATE -fno-sanitize=all -fsanitize=thread -g1)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:mutant_${name}>)

  string(TOLOWER "${ARG_RACE}" is_race)
  set_property(TARGET ${target} APPEND_STRING PROPERTY DSV3_MUTANT_DECLARATIONS "extern const KernelLauncher ${name};\n")
  set_property(TARGET ${target} APPEND_STRING PROPERTY DSV3_MUTANT_ROWS
    "{\"${ARG_ID}\", \"${ARG_KERNEL}\", \"${ARG_FILE}\", \"${ARG_BREAKS}\", \"${ARG_OP}\", \"${ARG_CASES}\", ${is_race}, mutants::${name}},\n")
endfunction()

# dsv3_kernel_mutant_table(<target> <function>): what <target> has been given so far, as
# const std::vector<tools::KernelMutant>& tools::<function>().
function(dsv3_kernel_mutant_table target function)
  get_target_property(declarations ${target} DSV3_MUTANT_DECLARATIONS)
  get_target_property(rows ${target} DSV3_MUTANT_ROWS)
  set(table ${CMAKE_BINARY_DIR}/generated/mutants/${target}.cpp)
  file(CONFIGURE OUTPUT ${table} CONTENT
"#include \"tools/device/kernel_mutant.hpp\"

namespace tools {
namespace mutants {
@declarations@}
const std::vector<KernelMutant>& @function@() {
  static const std::vector<KernelMutant> table{
@rows@};
  return table;
}
}
" @ONLY)
  target_sources(${target} PRIVATE ${table})
endfunction()

# The same for kernels between ranks, whose tests take a launcher from a header.
# dsv3_mutant_header(<name> <kernel> FIND <line> REPLACE <text>): the kernel's header with one line changed, as mutants/<name>.cuh in the
# generated headers, in namespace gpu::DSV3_BACKEND::<name>. It takes the arguments of the original. The line has to be there once.
function(dsv3_mutant_header name kernel)
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
