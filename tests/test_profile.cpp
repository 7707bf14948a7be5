// A profile must not lose time or count operations twice.
#include "bonsai/framework/autograd/profile.h"

#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

constexpr int kSteps = 3;

void run_steps(Trainer& trainer, Profile& profile) {
  for (int step = 0; step < kSteps; ++step) {
    profile.part("batch");
    trainer.step(step);
    profile.end_step();
  }
}

const Profile::Row* row_of(const std::vector<Profile::Row>& rows, const std::string& part,
                           const std::string& op) {
  for (const Profile::Row& row : rows)
    if (row.part == part && row.op == op) return &row;
  return nullptr;
}

// tiny.yaml has 2 micro-batches of 2 x 8 tokens. The products are query, key, value, output, two of the mlp
// and the head.
TEST(Profile, CountsEveryCallAndOperationOnceAndItsRowsAddUpToTheStep) {
  const TinyRun run;
  Trainer trainer(run.config);
  Profile profile(DType::f32);
  run_steps(trainer, profile);
  const auto rows = profile.rows();
  int64_t ns = 0;
  for (const Profile::Row& row : rows) {
    EXPECT_GE(row.ns, 0) << row.part << " " << row.op;
    ns += row.ns;
  }
  EXPECT_EQ(ns, profile.ns());
  EXPECT_EQ(profile.steps(), kSteps);
  for (const char* part : {"batch", "forward", "backward", "loss", "update"})
    EXPECT_NE(row_of(rows, part, ""), nullptr) << part;

  double weights = 16.0 * static_cast<double>(run.config.model.vocab_size);
  for (const auto& [in, out] : {std::pair{16, 16}, {16, 16}, {16, 16}, {16, 16}, {16, 64}, {64, 16}})
    weights += in * out;
  const double products = kSteps * 2 * 2 * 16 * weights;  // steps, micro-batches, multiply and add, tokens
  for (const auto& [part, times] : {std::pair{"forward", 1}, {"backward", 2}}) {
    const Profile::Row* linear = row_of(rows, part, "linear");
    ASSERT_NE(linear, nullptr);
    EXPECT_EQ(linear->calls, kSteps * 2 * 7) << part;
    EXPECT_EQ(linear->work.flops, times * products) << part;
    // 2 sequences with 2 heads and 8 * 9 / 2 pairs of 8 elements.
    const Profile::Row* attention = row_of(rows, part, "scaled_dot_product_attention");
    ASSERT_NE(attention, nullptr);
    EXPECT_EQ(attention->work.flops, kSteps * 2 * 4 * 36 * (times == 1 ? 4 : 10) * 8) << part;
  }
  const Profile::Row* gelu = row_of(rows, "forward", "gelu_tanh");
  ASSERT_NE(gelu, nullptr);
  EXPECT_EQ(gelu->work.bytes, kSteps * 2 * 2 * 16 * 64 * 4);  // read and written
  const Profile::Row* adamw = row_of(rows, "update", "adamw");
  ASSERT_NE(adamw, nullptr);
  EXPECT_EQ(adamw->work.bytes, kSteps * 7 * 4 * trainer.arena().elements());
  EXPECT_EQ(row_of(rows, "forward", "reshape"), nullptr) << "an op without a kernel takes no time of its own";
}

TEST(Profile, ChangesNoBitAndIsGoneWithoutATrace) {
  const TinyRun run;
  const auto plain = kernels(Device{}, DType::f32).gemm.run;
  Trainer one(run.config), other(run.config);
  {
    Profile profile(DType::f32);
    EXPECT_NE(kernels(Device{}, DType::f32).gemm.run, plain);
    EXPECT_NE(error_of([] { Profile second(DType::f32); }).find("being profiled already"), std::string::npos);
    run_steps(one, profile);
    EXPECT_TRUE(profile.events().empty()) << "no trace was asked for";
  }
  EXPECT_EQ(kernels(Device{}, DType::f32).gemm.run, plain);
  EXPECT_EQ(OpWatcher::active(), nullptr);
  for (int step = 0; step < kSteps; ++step) other.step(step);
  EXPECT_TRUE(same_bits(one.arena().values(), other.arena().values()));
}

// In a trace kernels are nested in ops and ops in parts, and layers are named.
TEST(Profile, EventsNest) {
  const TinyRun run;
  Trainer trainer(run.config);
  Profile profile(DType::f32, 1);
  run_steps(trainer, profile);
  std::vector<Profile::Event> parts, ops;
  for (const Profile::Event& e : profile.events()) {
    if (e.kind == Profile::Event::part) parts.push_back(e);
    if (e.kind == Profile::Event::op) ops.push_back(e);
  }
  EXPECT_EQ(parts.size(), 9u) << "two micro-batches of four parts each, and the update";
  const auto within = [](const Profile::Event& e, const std::vector<Profile::Event>& outer) {
    return std::any_of(outer.begin(), outer.end(),
                       [&](const auto& o) { return o.begin <= e.begin && e.end <= o.end; });
  };
  for (const Profile::Event& op : ops) EXPECT_TRUE(within(op, parts)) << op.name;
  int outside = 0;
  for (const Profile::Event& e : profile.events()) {
    if (e.kind != Profile::Event::kernel) continue;
    EXPECT_TRUE(within(e, parts)) << e.name;
    outside += !within(e, ops);
  }
  EXPECT_GT(outside, 0) << "the tape adds gradients, and the optimizer runs, outside ops";
  EXPECT_TRUE(std::any_of(ops.begin(), ops.end(),
                          [](const auto& e) { return e.layer == "block.0.attention.query"; }));
}

// A gradient that is computed by other ops has one row, not several.
TEST(Profile, OpsWithinAGradientBelongToIt) {
  const Tensor a = random_tensor({3, 1, 4}, DType::f32, 1), b = random_tensor({2, 4}, DType::f32, 2);
  Profile profile(DType::f32);
  profile.part("all");
  differentiate([](const std::vector<Tensor>& in) { return mul(in[0], in[1]); }, {a, b});
  profile.end_step();
  for (const Profile::Row& row : profile.rows()) EXPECT_TRUE(row.op == "mul" || row.op.empty()) << row.op;
}

}  // namespace
}  // namespace bonsai::test
