// A file of reference values: its tensors by name, and which of them a test has used.
#pragma once

#include <set>

#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/io/safetensors.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {

// The tolerance of a result relative to the float64 reference.
inline double tolerance_of(DType dtype) { return dtype == DType::f64 ? 1e-10 : 1e-5; }

class Fixture {
 public:
  explicit Fixture(const std::string& name) : name_(name), file_(fixtures() / (name + ".safetensors")) {
    for (const std::string& tensor : file_.names()) unread_.insert(tensor);
  }

  std::string setting(const std::string& key, const std::string& otherwise = "") const {
    const auto at = file_.metadata().find(key);
    return at == file_.metadata().end() ? otherwise : at->second;
  }
  bool has(const std::string& tensor) const { return file_.contains(tensor); }
  const std::set<std::string>& unread() const { return unread_; }

  Tensor read(const std::string& tensor, DType dtype) {
    unread_.erase(tensor);
    const bool ids = file_.dtype(tensor) == "I64" || file_.dtype(tensor) == "I32";
    return ids ? file_.read(tensor) : file_.read(tensor, dtype);
  }

  // Inputs and settings for the op table. Inputs with a gradient in the file are watched.
  ReferenceCase inputs(Tape& tape, DType dtype) {
    ReferenceCase c;
    c.settings = file_.metadata();
    for (const std::string& tensor : file_.names())
      if (tensor.starts_with("in.")) {
        const Tensor x = read(tensor, dtype);
        const std::string input = tensor.substr(3);
        c.inputs[input] = has("grad." + input) ? tape.watch(x) : x;
      }
    return c;
  }

  // Expects the result to have the dtype and to agree. Elements that are exactly 0 in the file must be
  // exactly 0.
  void expect(const std::string& tensor, const Tensor& result, DType dtype, bool exact_zeros = false) {
    ASSERT_TRUE(result) << name_ << " " << tensor;
    const Tensor expected = read(tensor, DType::f64);
    EXPECT_EQ(result.dtype(), dtype) << name_ << " " << tensor;
    EXPECT_LE(relative_error(result, expected), tolerance_of(dtype)) << name_ << " " << tensor << " "
        << name_of(dtype);
    if (!exact_zeros) return;
    const auto got = result.values(), right = expected.values();
    for (size_t i = 0; i < right.size(); ++i) {
      if (right[i] != 0) continue;
      ASSERT_EQ(got[i], 0) << name_ << " " << tensor << " element " << i;
    }
  }

  // Compares y and the gradient of every watched input.
  void expect_all(Tape& tape, const ReferenceCase& c, const Tensor& y, DType dtype,
                  bool exact_zeros = false) {
    expect("out.y", y, dtype, exact_zeros);
    tape.backward(y, read("grad_out.y", dtype));
    for (const auto& [input, x] : c.inputs)
      if (has("grad." + input)) expect("grad." + input, tape.gradient(x), dtype, exact_zeros);
  }

 private:
  std::string name_;
  SafetensorsFile file_;
  std::set<std::string> unread_;
};

// The names of the reference files in this repository; another folder of fixtures has the same names.
inline std::vector<std::string> fixture_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(BONSAI_SOURCE_DIR "/tests/fixtures/" + folder))
    if (entry.path().extension() == ".safetensors")
      names.push_back(folder + "/" + entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline void expect_all_read(const Fixture& f, const std::string& name) {
  EXPECT_TRUE(f.unread().empty()) << name << ": no test reads " << *f.unread().begin();
}

}  // namespace bonsai::test
