# Outside libraries, all Debian packages (tools/setup installs them).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
find_path(FAST_CPP_CSV_INCLUDE_DIR csv.h PATH_SUFFIXES libfccp REQUIRED)
