// Names the source line of a program counter.
#pragma once

#include <cstdint>
#include <string>

namespace gpu::emulation {

// Address at which the running program is loaded.
uintptr_t image_base();
// "file:line" of the innermost line that is not in the portability layer or the emulation, by binutils' addr2line; without that
// program, or without debug information, the address in hexadecimal.
std::string source_line(uintptr_t program_counter);

}  // namespace gpu::emulation
