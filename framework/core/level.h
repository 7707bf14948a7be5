// The namespace of code that is compiled once per instruction-set level (see backend/cpu/README.md).
//
// Inline functions are weak symbols: if two object files define the same one, the linker keeps an
// arbitrary copy. If the object files were compiled for different processors, the program may run the
// wrong copy and crash with an illegal instruction. Therefore every inline function that kernels use
// lives in an inline namespace named after the level, which gives each level's copy its own symbol.
#pragma once

#ifndef BONSAI_LEVEL
// The level that this file is compiled for.
#define BONSAI_LEVEL base  // everything outside backend/cpu
#endif
