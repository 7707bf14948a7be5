// bonsai audit CONFIG: checks that no position of the model sees later positions, another row, padding or
// another segment.
#include <fmt/format.h>

#include "bonsai/tools/command.h"
#include "bonsai/trainers/audit.h"

namespace bonsai {

void add_audit(CLI::App& program) {
  auto a = std::make_shared<ConfigArguments>();
  CLI::App* command = program.add_subcommand(
      "audit",
      "check that no position sees later positions, another row, padding or another segment, and "
      "that the key/value cache changes no text");
  a->add_to(*command);
  command->callback([a] {
    RunConfig config = a->load();
    prepare_data_or_vocabulary(config);
    const std::vector<AuditReport> reports =
        audit_model(a->path, config.model, config.trainer.type(), AuditExtent::all, config.device.device());
    fmt::print("{}", text(reports));
    if (!passed(reports)) throw CLI::RuntimeError(1);
  });
}

}  // namespace bonsai
