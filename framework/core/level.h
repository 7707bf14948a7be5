// The namespace of code that is compiled once for each instruction-set level (see backend/cpu/README.md).
//
// Inline functions are weak symbols: when two objects hold one under the same name, the linker keeps
// either. If the objects were built for different processors, the program may run the wrong one and
// die of an illegal instruction. So every inline function that kernels use lives in an inline
// namespace named after the level, which makes the names differ.
#pragma once

#ifndef BONSAI_LEVEL
#define BONSAI_LEVEL base  // everything outside backend/cpu
#endif
