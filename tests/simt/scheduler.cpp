#include "tests/simt/scheduler.h"

#include <fmt/format.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "tests/simt/shared_memory.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace simt {

namespace {

constexpr int kWarp = 32;
constexpr size_t kStack = size_t{256} << 10;

int64_t blocks_run = 0;

enum class State : uint8_t { ready, at_barrier, in_warp_call, done };

struct WarpRequest {
  WarpCall call = WarpCall::sync;
  unsigned mask = 0;
  uint64_t brought = 0, got = 0;
  int source = 0;
};

struct Fiber {
  std::unique_ptr<std::byte[]> stack;
  bool started = false;
  jmp_buf context;
  uint3 index{};
  Moment now;
  State state = State::done;
  WarpRequest request;
  Place place;  // of the barrier or call it waits in
};

/// What a thread did wrong. Thrown on its fiber, caught where that begins.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string_view name_of(const Place& place) {
  const std::string_view file = place.file_name();
  return file.substr(file.rfind('/') + 1);
}

class Scheduler {
 public:
  std::string run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread,
                  unsigned seed);

  Fiber& current() { return fibers_[static_cast<size_t>(current_)]; }
  void wait(State state, const Place& place) {
    current().state = state;
    current().place = place;
    leave_fiber();
  }
  [[noreturn]] static void fault(const std::string& what) { throw Fault(what); }

  SharedMemory shared;

 private:
  static void enter();
  // Contexts are made by makecontext, and switched by _setjmp, which asks the system for nothing.
  void start_fiber(Fiber& fiber);
  void enter_fiber(int number);
  void leave_fiber() {
    if (_setjmp(current().context) == 0) {
      _longjmp(main_, 1);
    }
  }
  void live();

  void run_block(size_t shared_bytes);
  bool run_ready();
  bool release_warps();
  bool release_group(int first, int lane);
  bool release_block();
  std::string report(int thread, const std::string& what) const;
  std::string describe_deadlock() const;

  std::vector<Fiber> fibers_;
  int threads_ = 0, current_ = -1;
  const std::function<void()>* thread_ = nullptr;
  jmp_buf main_;
  ucontext_t main_context_;
  std::string failure_;
};

Scheduler& scheduler() {
  static Scheduler instance;
  return instance;
}

void Scheduler::enter() { scheduler().live(); }

// A fiber serves one thread after another, of block after block.
void Scheduler::live() {
  for (;;) {
    try {
      (*thread_)();
    } catch (const std::exception& error) {
      failure_ = report(current_, error.what());
    }
    current().state = State::done;
    leave_fiber();
  }
}

void Scheduler::start_fiber(Fiber& fiber) {
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, &Scheduler::enter, 0);
  fiber.started = true;
  swapcontext(&main_context_, &context);
}

void Scheduler::enter_fiber(int number) {
  current_ = number;
  threadIdx = current().index;
  if (_setjmp(main_) != 0) {
    return;
  }
  if (current().started) {
    _longjmp(current().context, 1);
  }
  start_fiber(current());
}

std::string Scheduler::report(int thread, const std::string& what) const {
  const uint3& at = fibers_[static_cast<size_t>(thread)].index;
  return fmt::format("block ({}, {}, {}), thread ({}, {}, {}): {}", blockIdx.x, blockIdx.y,
                     blockIdx.z, at.x, at.y, at.z, what);
}

bool Scheduler::run_ready() {
  bool ran = false;
  for (int i = 0; i < threads_ && failure_.empty(); ++i) {
    if (fibers_[static_cast<size_t>(i)].state == State::ready) {
      enter_fiber(i);
      ran = true;
    }
  }
  return ran;
}

/// Lets the lanes of one call go on, if all that still live are in it: "all non-exited threads
/// named in mask must execute the same intrinsic with the same mask" (CUDA C++ Programming Guide,
/// "Warp Shuffle Functions"). `first` is the warp's first thread.
bool Scheduler::release_group(int first, int lane) {
  const auto at = [&](int i) -> Fiber& { return fibers_[static_cast<size_t>(first + i)]; };
  const WarpRequest asked = at(lane).request;
  const int lanes = std::min(kWarp, threads_ - first);
  unsigned votes = 0, present = 0, live = 0, barriers = 0;
  for (int i = 0; i < lanes; ++i) {
    const Fiber& fiber = at(i);
    const bool named = (asked.mask >> i & 1U) != 0;
    live |= fiber.state == State::done ? 0 : 1U << i;
    if (!named || fiber.state == State::done) {
      continue;
    }
    if (fiber.state != State::in_warp_call || fiber.request.call != asked.call ||
        fiber.request.mask != asked.mask) {
      return false;
    }
    present |= 1U << i;
    votes |= fiber.request.brought != 0 ? 1U << i : 0;
    barriers = std::max(barriers, fiber.now.warp_barriers);
  }
  for (int i = 0; i < lanes; ++i) {
    Fiber& fiber = at(i);
    if ((present >> i & 1U) == 0) {
      continue;
    }
    const int source = fiber.request.source;
    if (asked.call == WarpCall::shuffle && (present >> source & 1U) == 0) {
      failure_ =
          report(first + i, fmt::format("shuffle at {}:{} reads lane {}, which takes no part",
                                        name_of(fiber.place), fiber.place.line(), source));
      return true;
    }
    fiber.request.got = asked.call == WarpCall::shuffle ? at(source).request.brought : votes;
    // Only a barrier of all lanes orders all lanes; of the rest nothing is concluded.
    if (asked.call == WarpCall::sync && present == live) {
      fiber.now.warp_barriers = barriers + 1;
    }
  }
  for (int i = 0; i < lanes; ++i) {
    if ((present >> i & 1U) != 0) {
      at(i).state = State::ready;
    }
  }
  return true;
}

bool Scheduler::release_warps() {
  bool released = false;
  for (int i = 0; i < threads_ && failure_.empty(); ++i) {
    if (fibers_[static_cast<size_t>(i)].state == State::in_warp_call) {
      released |= release_group(i / kWarp * kWarp, i % kWarp);
    }
  }
  return released;
}

/// Lets the block go on if every one of its threads waits at the same barrier: __syncthreads() "is
/// allowed in conditional code but only if the conditional evaluates identically across the entire
/// thread block, otherwise the code execution is likely to hang or produce unintended side effects"
/// (CUDA C++ Programming Guide, "Synchronization Functions"). A thread that has returned counts as
/// one that never comes.
bool Scheduler::release_block() {
  const Fiber& first = fibers_[0];
  for (int i = 0; i < threads_; ++i) {
    const Fiber& fiber = fibers_[static_cast<size_t>(i)];
    if (fiber.state != State::at_barrier || fiber.place.line() != first.place.line() ||
        name_of(fiber.place) != name_of(first.place)) {
      return false;
    }
  }
  for (int i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[static_cast<size_t>(i)];
    ++fiber.now.block_barriers;
    fiber.state = State::ready;
  }
  return true;
}

std::string Scheduler::describe_deadlock() const {
  const auto waits = std::find_if(fibers_.begin(), fibers_.begin() + threads_,
                                  [](const Fiber& f) { return f.state != State::done; });
  const auto other = std::find_if(fibers_.begin(), fibers_.begin() + threads_, [&](const Fiber& f) {
    return f.state != waits->state || f.place.line() != waits->place.line();
  });
  const auto thread = [&](auto found) { return static_cast<int>(found - fibers_.begin()); };
  std::string what = fmt::format("{} at {}:{} is not reached by every thread it is for",
                                 waits->state == State::at_barrier ? "barrier" : "warp call",
                                 name_of(waits->place), waits->place.line());
  if (other != fibers_.begin() + threads_) {
    what += other->state == State::done ? fmt::format(": thread {} has returned", thread(other))
                                        : fmt::format(": thread {} waits at {}:{}", thread(other),
                                                      name_of(other->place), other->place.line());
  }
  return report(thread(waits), what);
}

void Scheduler::run_block(size_t shared_bytes) {
  shared.begin(shared_bytes);
  for (int i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[static_cast<size_t>(i)];
    const auto number = static_cast<unsigned>(i);
    fiber.index = {number % blockDim.x, number / blockDim.x % blockDim.y,
                   number / blockDim.x / blockDim.y};
    fiber.now = {i, 0, 0};
    fiber.state = State::ready;
  }
  while (failure_.empty()) {
    if (run_ready() || release_warps()) {
      continue;
    }
    const bool finished = std::all_of(fibers_.begin(), fibers_.begin() + threads_,
                                      [](const Fiber& f) { return f.state == State::done; });
    if (finished) {
      return;
    }
    if (!release_block()) {
      failure_ = describe_deadlock();
    }
  }
}

std::string Scheduler::run(dim3 grid, dim3 block, size_t shared_bytes,
                           const std::function<void()>& thread, unsigned seed) {
  thread_ = &thread;
  gridDim = grid;
  blockDim = block;
  threads_ = static_cast<int>(block.x * block.y * block.z);
  failure_.clear();
  while (fibers_.size() < static_cast<size_t>(threads_)) {
    fibers_.emplace_back().stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
  }
  std::vector<unsigned> order(static_cast<size_t>(grid.x) * grid.y * grid.z);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  for (const unsigned number : order) {
    blockIdx = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    ++blocks_run;
    run_block(shared_bytes);
    if (!failure_.empty()) {
      fibers_.clear();  // the others are left where they wait
      break;
    }
  }
  return failure_;
}

}  // namespace

std::string run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread,
                unsigned seed) {
  return scheduler().run(grid, block, shared_bytes, thread, seed);
}

int64_t block_number() { return blocks_run; }
int lane() { return scheduler().current().now.thread % kWarp; }

void sync_block(const Place& place) { scheduler().wait(State::at_barrier, place); }

uint64_t call_warp(WarpCall call, unsigned mask, uint64_t brought, int source, const Place& place) {
  Scheduler& s = scheduler();
  if ((mask >> lane() & 1U) == 0) {
    Scheduler::fault(fmt::format("warp call at {}:{}: the mask {:#x} lacks the calling lane {}",
                                 name_of(place), place.line(), mask, lane()));
  }
  s.current().request = {call, mask, brought, 0, source};
  s.wait(State::in_warp_call, place);
  return s.current().request.got;
}

void read_shared(int offset, size_t bytes, void* to) {
  Scheduler& s = scheduler();
  if (const std::string wrong = s.shared.read(offset, bytes, to, s.current().now); !wrong.empty()) {
    Scheduler::fault(wrong);
  }
}
void write_shared(int offset, size_t bytes, const void* from) {
  Scheduler& s = scheduler();
  if (const std::string wrong = s.shared.write(offset, bytes, from, s.current().now);
      !wrong.empty()) {
    Scheduler::fault(wrong);
  }
}
void begin_shared_copy(int offset, size_t bytes) {
  Scheduler& s = scheduler();
  if (const std::string wrong = s.shared.begin_copy(offset, bytes, s.current().now);
      !wrong.empty()) {
    Scheduler::fault(wrong);
  }
}
void end_shared_copy(int offset, size_t bytes, const void* from) {
  scheduler().shared.end_copy(offset, bytes, from, scheduler().current().now);
}
void report_index(int index, int count) {
  Scheduler::fault(fmt::format("out of bounds: element {} of {} in shared memory", index, count));
}

}  // namespace simt
