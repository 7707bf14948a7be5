// The checks that every row of the op table must pass. Tests run them on the whole table, and so does
// `bonsai gradcheck` without a config.
#pragma once

#include <span>
#include <string>

#include "bonsai/framework/checks/op_cases.h"

namespace bonsai {

struct OpCheck {
  const char* name;                     // "gradient"
  std::string (*fault)(const OpCase&);  // returns what is wrong, or an empty string; may throw an Error
};

// All checks of a row.
std::span<const OpCheck> op_checks();

struct OpReport {
  std::string row;
  std::vector<std::string> faults;  // "gradient: ..."
  bool passed() const { return faults.empty(); }
  std::string text() const;
};

// Runs all checks.
OpReport check_op(const OpCase& row);

}  // namespace bonsai
