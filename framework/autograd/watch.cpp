#include "bonsai/framework/autograd/watch.h"

#include <utility>

namespace bonsai {
namespace {

thread_local OpWatcher* current = nullptr;

}  // namespace

OpWatcher* OpWatcher::active() { return current; }

ScopedWatcher::ScopedWatcher(OpWatcher& watcher) : previous_(std::exchange(current, &watcher)) {}
ScopedWatcher::~ScopedWatcher() { current = previous_; }

}  // namespace bonsai
