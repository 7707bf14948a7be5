#include "bonsai/tests/ran_tests.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return ran_tests();
}
