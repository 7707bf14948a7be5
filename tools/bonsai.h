// The program, for programs of your own that have parts of their own: CMake's bonsai_add_program writes
// their main().
#pragma once

namespace bonsai {

// Runs the command in argv and returns the exit status: 0 done, 1 failed while running, 2 wrong usage or
// config. A signal that stops a run ends the process with 128 and its number. Results go to standard
// output, progress and errors to standard error. Errors of register_parts, which is called first, are
// reported as those of a command.
int bonsai_main(int argc, char** argv, void (*register_parts)() = nullptr);

}  // namespace bonsai
