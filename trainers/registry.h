// Tasks by name, filled by explicit calls.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bonsai/trainers/task.h"

namespace bonsai {

std::vector<std::string> task_names();
std::shared_ptr<Task> make_task(const std::string& name);  // null where there is no such task
void add_task(const std::string& name, std::function<std::shared_ptr<Task>()> make);

}  // namespace bonsai
