// What a Trace records: phases, kernels once each, and nothing without one.
#include "kernels/trace.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"

namespace headroom::testing {
namespace {

using kernels::backend;
using kernels::Kernel;
using kernels::Phase;
using kernels::Trace;
using kernels::TraceEvent;
using kernels::Transpose;

std::vector<std::string> names_of(const Trace& trace) {
  std::vector<std::string> names;
  for (const TraceEvent& event : trace.events()) {
    names.emplace_back(event.name);
  }
  return names;
}

using Names = std::vector<std::string>;

void fill_something() {
  Tensor x = Tensor::empty({3}, DType::f32);
  backend(kCpu).fill(x, 1.0);
}

TEST(Trace, RecordsNothingBeforeItBeginsAndAfterItHasEnded) {
  kernels::Backend* const plain = &backend(kCpu);
  {
    const Phase phase("before");
    fill_something();
  }
  {
    Trace trace;
    EXPECT_EQ(Trace::current(), &trace);
    EXPECT_TRUE(trace.events().empty());
    EXPECT_TRUE(trace.totals().phases.empty());
    fill_something();
    EXPECT_EQ(names_of(trace), Names{"fill"});
  }
  EXPECT_EQ(Trace::current(), nullptr);
  EXPECT_EQ(MemoryWatch::current(), nullptr);
  EXPECT_EQ(&backend(kCpu), plain);
  fill_something();
  const Trace next;
  EXPECT_TRUE(next.events().empty());
}

TEST(Trace, CountsAKernelWithinAKernelOnce) {
  Trace trace;
  {
    const Kernel outer("outer");
    const Kernel inner("inner");
    Tensor::zeros({4}, DType::f32);
    fill_something();
  }
  { const Kernel again("outer"); }
  EXPECT_EQ(names_of(trace), (Names{"outer", "outer"}));
  ASSERT_EQ(trace.totals().kernels.size(), 1U);
  EXPECT_EQ(trace.totals().kernels[0].calls, 2);
  EXPECT_EQ(trace.totals().kernels[0].ns,
            trace.events()[0].duration_ns + trace.events()[1].duration_ns);
}

TEST(Trace, SumsPhasesWithinPhases) {
  Trace trace;
  for (int step = 0; step < 3; ++step) {
    const Phase whole("step");
    for (const char* name : {"forward", "backward"}) {
      const Phase part(name);
      fill_something();
      fill_something();
    }
    fill_something();
  }
  { const Phase other("forward"); }
  const kernels::PhaseTotal& root = trace.totals();
  ASSERT_EQ(root.phases.size(), 2U);
  const kernels::PhaseTotal& step = *root.phases[0];
  EXPECT_STREQ(step.name, "step");
  EXPECT_EQ(step.calls, 3);
  ASSERT_EQ(step.kernels.size(), 1U);
  EXPECT_EQ(step.kernels[0].calls, 3);
  ASSERT_EQ(step.phases.size(), 2U);
  int64_t inside = step.kernels[0].ns;
  for (const auto& part : step.phases) {
    EXPECT_EQ(part->calls, 3);
    ASSERT_EQ(part->kernels.size(), 1U);
    EXPECT_EQ(part->kernels[0].calls, 6);
    EXPECT_LE(part->kernels[0].ns, part->ns);
    inside += part->ns;
  }
  EXPECT_LE(inside, step.ns);
  EXPECT_LE(step.ns, root.ns);
  EXPECT_STREQ(root.phases[1]->name, "forward");  // another than the one within the step
  EXPECT_EQ(root.phases[1]->calls, 1);
}

TEST(Trace, ListsEventsThatNest) {
  Trace trace;
  {
    const Phase whole("step");
    const Phase part("forward");
    fill_something();
  }
  ASSERT_EQ(names_of(trace), (Names{"fill", "forward", "step"}));
  const std::vector<TraceEvent>& events = trace.events();
  EXPECT_TRUE(events[0].kernel);
  EXPECT_FALSE(events[1].kernel);
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_GE(events[i].begin_ns, events[i + 1].begin_ns);
    EXPECT_LE(events[i].begin_ns + events[i].duration_ns,
              events[i + 1].begin_ns + events[i + 1].duration_ns);
  }
}

TEST(Trace, EndsThePhasesThatAnExceptionLeaves) {
  Trace trace;
  try {
    const Phase whole("step");
    const Kernel kernel("broken");
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
  }
  fill_something();
  EXPECT_EQ(names_of(trace), (Names{"broken", "step", "fill"}));
  EXPECT_EQ(trace.totals().kernels.size(), 1U);
}

TEST(Trace, GoesOnSummingWhenItsListIsFull) {
  Trace trace(2);
  {
    const Phase phase("step");
    for (int i = 0; i < 5; ++i) {
      fill_something();
    }
  }
  EXPECT_EQ(names_of(trace), (Names{"fill", "fill"}));
  EXPECT_EQ(trace.dropped_events(), 4);
  EXPECT_EQ(trace.totals().phases.at(0)->kernels.at(0).calls, 5);
  EXPECT_EQ(trace.totals().phases.at(0)->calls, 1);
}

TEST(Trace, LeavesOtherThreadsAlone) {
  Trace trace;
  std::thread other([] {
    const Phase phase("elsewhere");
    fill_something();
    Tensor::zeros({4}, DType::f32);
    EXPECT_THROW(Trace(), Error);
  });
  other.join();
  EXPECT_TRUE(trace.events().empty());
  EXPECT_TRUE(trace.totals().phases.empty());
}

TEST(Trace, RefusesASecondOneBesideIt) {
  Trace trace;
  EXPECT_THROW(Trace(), Error);
  fill_something();
  EXPECT_EQ(names_of(trace), Names{"fill"});
}

TEST(Trace, NamesWhatAKernelWorkedOn) {
  const Tensor a = Tensor::zeros({4, 3}, DType::f32), b = Tensor::zeros({4, 5}, DType::f32);
  const Tensor c = Tensor::zeros({2, 3, 4}, DType::f32), d = Tensor::zeros({2, 6, 4}, DType::f32);
  Tensor y = Tensor::zeros({3, 5}, DType::f32), stack = Tensor::zeros({2, 3, 6}, DType::f32);
  Trace trace;
  backend(kCpu).matmul(a, Transpose::yes, b, Transpose::no, {y});
  backend(kCpu).matmul(a, Transpose::yes, b, Transpose::no, {y, true});
  backend(kCpu).matmul(c, Transpose::no, d, Transpose::yes, {stack});
  backend(kCpu).add(y, y, y);
  const Tensor copy = y.clone();
  y.zero();
  std::vector<std::string> operands;
  for (const TraceEvent& event : trace.events()) {
    operands.push_back(fmt::format("{}: {}", event.name, kernels::to_string(event.operands)));
  }
  EXPECT_EQ(operands,
            (Names{"matmul: 3x5x4 f32 TN", "matmul: 3x5x4 f32 TN +=", "matmul: 2x3x6x4 f32 NT",
                   "add: 3x5 f32", "copy: 60 i8", "zero: 60 i8"}));
  EXPECT_EQ(kernels::to_string({}), "");
  EXPECT_EQ(
      kernels::to_string({.sizes = {2, 3}, .count = 2, .dtype = DType::bf16, .letters = "BT"}),
      "B 2 T 3 bf16");
}

}  // namespace
}  // namespace headroom::testing
