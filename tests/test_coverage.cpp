// An op or kernel that no test reaches will break unnoticed. The rows of the op table, which all other checks
// loop over, must call everything that ops.h and kernels.def list.
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "bonsai/framework/autograd/arena.h"
#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"
#include "bonsai/trainers/optimizer/optimizer.h"

namespace bonsai::test {
namespace {

using Names = std::set<std::string>;

Names declared_ops() {
  Names names = {
#define OP(name, functor, saves, domain) #name,
      BONSAI_ELEMENTWISE(OP)
#undef OP
  };
  std::ifstream header(BONSAI_SOURCE_DIR "/framework/ops/ops.h");
  const std::regex declaration(R"(^(?:Tensor|std::vector<Tensor>) (\w+)\()");
  std::smatch found;
  for (std::string line; std::getline(header, line);)
    if (std::regex_search(line, found, declaration)) names.insert(found[1]);
  return names;
}

Names ops_without_row(const std::vector<OpCase>& rows) {
  Names missing = declared_ops();
  for (const OpCase& row : rows) missing.erase(row.op);
  return missing;
}

std::string list(const Names& names) {
  std::ostringstream text;
  for (const auto& name : names) text << name << ' ';
  return text.str();
}

// ---- A kernel table whose entries count their calls.

std::map<std::string, int> calls;

template <auto Member>
struct Counted;
template <class... Args, Kernel<void(Args...)> KernelTable::*Member>
struct Counted<Member> {
  static inline void (*original)(Args...) = nullptr;
  static inline const char* name = "";
  static void run(Args... args) {
    ++calls[name];
    original(args...);
  }
  static void install(KernelTable& table) {
    auto& kernel = table.*Member;
    original = kernel.run, name = kernel.name;
    kernel.run = run;
  }
};

void count_calls(KernelTable& table) {
#define KERNEL(name, arguments) Counted<&KernelTable::name>::install(table);
#define OP(name, functor, saves, domain)      \
  Counted<&KernelTable::name>::install(table); \
  Counted<&KernelTable::name##_backward>::install(table);
#include "bonsai/framework/backend/kernels.def"
  BONSAI_ELEMENTWISE(OP)
#undef OP
#undef KERNEL
}

Names kernels_not_called(const std::vector<OpCase>& rows, DType dtype) {
  calls.clear();
  Names missing;
  const ScopedKernels counting({}, dtype, count_calls);
  for (const OpCase& row : rows) differentiate(row.call, make_inputs(row, dtype));
  Parameter weight("weight", zeros({2, 3}, dtype), /*decay=*/true);  // no op calls the optimizer's kernels
  ParameterArena arena({&weight});
  for (const std::string& kind : registry<OptimizerKind>().names()) {
    Optimizer optimizer(arena, {.kind = kind});
    optimizer.add_loss(zeros({}, dtype), true);
    optimizer.step(0, 1e-3, 1);
  }
  KernelTable table = kernels(Device{}, dtype);
  table.for_each([&](const char* name, auto&) {
    if (calls[name] == 0) missing.insert(name);
  });
  return missing;
}

std::vector<OpCase> rows_without(const std::string& op) {
  std::vector<OpCase> rows = op_cases();
  std::erase_if(rows, [&](const OpCase& row) { return row.op == op; });
  return rows;
}

TEST(Coverage, EveryOpHasARow) {
  const Names ops = declared_ops();
  EXPECT_GT(ops.size(), 35u) << list(ops);
  for (const char* known : {"gelu", "split", "matmul", "scaled_dot_product_attention"})
    EXPECT_TRUE(ops.count(known)) << known;
  EXPECT_EQ(list(ops_without_row(op_cases())), "");
}

TEST(Coverage, EveryKernelIsCalledByARowOrTheOptimizer) {
  for (const DType dtype : {DType::f32, DType::f64})
    EXPECT_EQ(list(kernels_not_called(op_cases(), dtype)), "") << name_of(dtype);
}

TEST(Coverage, TheCpuHasEveryKernel) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    KernelTable table = kernels(Device{}, dtype);
    int entries = 0;
    table.for_each([&](const char* name, auto& kernel) {
      EXPECT_NE(kernel.run, nullptr) << name;
      EXPECT_STREQ(kernel.name, name);
      EXPECT_EQ(kernel.dtype, dtype) << name;
      ++entries;
    });
    EXPECT_GT(entries, 50);
  }
}

// ---- The checks above can fail.

TEST(Coverage, AnOpOrKernelWithoutARowIsFound) {
  EXPECT_EQ(list(ops_without_row(rows_without("softmax"))), "softmax ");
  EXPECT_EQ(list(ops_without_row({})), list(declared_ops()));
  EXPECT_EQ(list(kernels_not_called(rows_without("log_softmax"), DType::f64)),
            "log_softmax log_softmax_backward ");
}

TEST(Coverage, AMissingKernelIsAnErrorThatNamesIt) {
  const Tensor x = zeros({2, 3}, DType::f64);
  {
    const ScopedKernels without({}, DType::f64, [](KernelTable& table) { table.softmax.run = nullptr; });
    EXPECT_EQ(error_of([&] { softmax(x); }), "[softmax] no cpu kernel for f64");
    EXPECT_EQ(error_of([&] { log_softmax(x), softmax(zeros({2})); }), "no error");
  }
  EXPECT_EQ(error_of([&] { softmax(x); }), "no error");
}

TEST(Coverage, ScopedKernelsNest) {
  const Tensor one = full({1}, 1);
  const auto doubles = [](KernelTable& table) {
    table.exp.run = [](View, MutView y) { y.as<float>()[0] = 2; };
  };
  const auto triples = [](KernelTable& table) {
    table.exp.run = [](View, MutView y) { y.as<float>()[0] = 3; };
  };
  const double before = exp(one).item();
  {
    const ScopedKernels outer({}, DType::f32, doubles);
    {
      const ScopedKernels inner({}, DType::f32, triples);
      EXPECT_EQ(exp(one).item(), 3);
    }
    EXPECT_EQ(exp(one).item(), 2);
  }
  EXPECT_EQ(exp(one).item(), before);
}

}  // namespace
}  // namespace bonsai::test
