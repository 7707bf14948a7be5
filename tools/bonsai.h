// Entry point of the program, also for other programs that add their own parts: CMake's bonsai_add_program
// generates their main().
#pragma once

namespace bonsai {

// Runs the command in argv and returns the exit status: 0 for success, 1 for a failure, 2 for wrong usage or
// config, 128 + N for a run stopped by signal N. Results go to standard output, progress and errors to
// standard error. Calls register_parts first and reports its errors like those of a command.
int bonsai_main(int argc, char** argv, void (*register_parts)() = nullptr);

}  // namespace bonsai
