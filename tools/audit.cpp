// bonsai audit CONFIG: proves that no position of the model sees its future, another row or padding.
#include <fmt/format.h>

#include "tools/command.h"
#include "trainers/audit.h"

namespace bonsai {

void add_audit(CLI::App& program) {
  auto a = std::make_shared<ConfigArguments>();
  CLI::App* command =
      program.add_subcommand("audit", "prove that no position sees its future, another row or padding");
  a->add_to(*command);
  command->callback([a] {
    RunConfig config = a->load();
    prepare_data_or_vocabulary(config);
    const AuditReport report = audit_model(a->path, config.model, config.trainer.type(), AuditExtent::all);
    fmt::print("{}", report.text());
    if (!report.passed()) throw CLI::RuntimeError(1);
  });
}

}  // namespace bonsai
