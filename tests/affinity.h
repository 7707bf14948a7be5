// Restricts the calling thread, and threads and processes that it starts, to one of the processors that it
// may use.
#pragma once

#include <sched.h>

namespace bonsai::test {

inline bool use_one_processor() {
  cpu_set_t all, one;
  if (::sched_getaffinity(0, sizeof all, &all) != 0) return false;
  int first = 0;
  while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &all)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  return ::sched_setaffinity(0, sizeof one, &one) == 0;
}

}  // namespace bonsai::test
