// The emulated device in a library that is loaded at run time, as the backend's is: kernels run, faults are
// named, and a program's own SIGSEGV handler still works.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

namespace {

class Loaded : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    library_ = dlopen(BONSAI_LOADED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  template <class F>
  static F* entry(const char* name) {
    auto* found = reinterpret_cast<F*>(dlsym(library_, name));
    EXPECT_NE(found, nullptr) << name;
    return found;
  }
  static std::string errors() { return entry<const char*()>("bonsai_emulation_errors")(); }
  static inline void* library_ = nullptr;
};

TEST_F(Loaded, runs_kernels_from_several_threads) {
  auto* const sum_to = entry<float(int)>("sum_to");
  EXPECT_EQ(sum_to(1000), 499500.0f);
  for (int i = 0; i < 3; ++i)
    std::thread([&] { EXPECT_EQ(sum_to(100), 4950.0f); }).join();
  int64_t counts[6] = {};
  entry<void(int64_t*)>("bonsai_emulation_counts")(counts);
  EXPECT_EQ(counts[3], 4);
  EXPECT_EQ(errors(), "");
}

TEST_F(Loaded, names_kernels_and_lines) {
  entry<void()>("write_past_the_end")();
  const std::string text = errors();
  for (const char* word : {"faults::write_at block (0,0,0) thread (3,0,0) at faults.cu:", "(past its end)"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
  EXPECT_EQ(entry<float(int)>("sum_to")(10), 45.0f) << "as good as new";
}

void leave(int) { _exit(7); }
void leave_with_address(int, siginfo_t* info, void*) {
  _exit(reinterpret_cast<uintptr_t>(info->si_addr) == 4096 ? 8 : 9);
}

TEST_F(Loaded, leaves_the_programs_own_handler_alone) {
  const auto use = [] {
    entry<float(int)>("sum_to")(10);
    entry<void()>("write_past_the_end")();
  };
  EXPECT_EXIT(
      {
        signal(SIGSEGV, leave);
        use();
        raise(SIGSEGV);
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        struct sigaction mine {};
        mine.sa_sigaction = leave_with_address;
        mine.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &mine, nullptr);
        entry<void*()>("keep_memory")();  // from here on the emulator handles faults first
        use();
        *reinterpret_cast<volatile int*>(4096) = 1;
      },
      testing::ExitedWithCode(8), "");
}

}  // namespace
