// Tasks by name.
#pragma once

#include "bonsai/framework/config/registry.h"
#include "bonsai/trainers/task.h"

namespace bonsai {

void register_trainer_parts();  // written by CMake

// A task is its own config: it is made without arguments and visited afterwards.
struct TaskKind {
  static constexpr const char *name = "task", *standard = "language_model";
  using Make = std::unique_ptr<Task>();
  static void register_all() { register_trainer_parts(); }
  template <class Part>
  static std::unique_ptr<Task> make(NoKeys) {
    return std::make_unique<Part>();
  }
};

}  // namespace bonsai
