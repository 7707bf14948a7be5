#include "bonsai/trainers/registry.h"

#include <map>

#include "bonsai/trainers/induction.h"
#include "bonsai/trainers/language_model.h"
#include "bonsai/trainers/reverse.h"
#include "bonsai/trainers/seq2seq.h"

namespace bonsai {
namespace {

using Registry = std::map<std::string, std::function<std::shared_ptr<Task>()>>;

Registry& tasks() {
  static Registry registry = {
      {"induction", [] { return std::make_shared<Induction>(); }},
      {"language_model", [] { return std::make_shared<LanguageModel>(); }},
      {"reverse", [] { return std::make_shared<Reverse>(); }},
      {"seq2seq", [] { return std::make_shared<Seq2Seq>(); }},
  };
  return registry;
}

}  // namespace

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : tasks()) names.push_back(name);
  return names;
}

std::shared_ptr<Task> make_task(const std::string& name) {
  const auto at = tasks().find(name);
  return at == tasks().end() ? nullptr : at->second();
}

void add_task(const std::string& name, std::function<std::shared_ptr<Task>()> make) {
  tasks()[name] = std::move(make);
}

}  // namespace bonsai
