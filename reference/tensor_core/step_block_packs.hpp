// The vector types of step_block_bodies.hpp, in the compilers' own extension, which is lowered to whatever the file is compiled for.
// Included inside the anonymous namespace of each of those files, behind kVecBytes, the bytes of a vector of numbers.

constexpr int kVecLen = kVecBytes / 4;
typedef float Floats __attribute__((vector_size(kVecBytes), may_alias));
typedef int32_t Ints __attribute__((vector_size(kVecBytes), may_alias));

// A byte of each output of a tile.
constexpr int kColsOfTile = StepTile<float>::kCols;
typedef uint8_t Bytes __attribute__((vector_size(kColsOfTile), may_alias));
typedef uint32_t FoursOfBytes __attribute__((vector_size(kColsOfTile)));
