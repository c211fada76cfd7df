# The commit that golden files are stamped with, looked up when building so that it is never stale.
find_package(Git QUIET)
add_custom_target(dsv3_commit
  COMMAND ${CMAKE_COMMAND} -DGIT=${GIT_EXECUTABLE} -DSOURCE=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
          -DOUT=${CMAKE_BINARY_DIR}/generated/version.hpp -P ${PROJECT_SOURCE_DIR}/cmake/write_commit.cmake
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/version.hpp)
add_library(dsv3_version INTERFACE)
target_include_directories(dsv3_version INTERFACE ${CMAKE_BINARY_DIR}/generated)
add_dependencies(dsv3_version dsv3_commit)
