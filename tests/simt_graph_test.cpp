// Steps recorded as CUDA graphs, on the doubles: what a replay does, whose its memory is, and what
// stream capture refuses.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_allocator.h"
#include "kernels/cuda/launch.h"
#include "tests/simt/device_memory.h"
#include "tests/simt/gpu.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;

std::string failure(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Tensor on_gpu(const std::vector<float>& values) {
  return Tensor::from(values, {std::ssize(values)}, gpu());
}

// --- the double ---

/// A stream of the test's own, which is captured from the start.
class Captured : public ::testing::Test {
 protected:
  void SetUp() override {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    begin();
  }
  void TearDown() override {
    cudaGraph_t left = nullptr;
    cudaStreamEndCapture(stream_, &left);
    cudaGraphDestroy(left);
    cudaStreamDestroy(stream_);
    cudaGetLastError();
  }
  void begin() { ASSERT_EQ(cudaStreamBeginCapture(stream_, kThreadLocal), cudaSuccess); }
  /// What was captured, ready to be launched.
  cudaGraphExec_t end() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t made = nullptr;
    cudaGraphInstantiate(&made, graph, 0);
    cudaGraphDestroy(graph);
    return made;
  }
  /// Whether what was refused has cost the graph: "Invalidation" in the Programming Guide.
  void expect_lost() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaMemsetAsync(memory_.as<void>(), 0, 4, stream_),
              cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  }

  static constexpr cudaStreamCaptureMode kThreadLocal = cudaStreamCaptureModeThreadLocal;
  const DeviceMemory memory_{2 * sizeof(float)};
  const DeviceMemory other_memory_{4};
  cudaStream_t stream_ = nullptr;
  float number_ = 5;
};

__global__ void add_to(float* x, float number) { *x += number; }
__global__ void set_to(float* x, float number) { *x = number; }

/// "all operations pushed into the stream will not be executed" (cudaStreamBeginCapture), and are
/// at every launch, with the parameters they had.
TEST_F(Captured, WorkIsDoneAtEveryLaunchWithTheParametersItHad) {
  auto* x = memory_.as<float>();
  x[0] = 1;
  x[1] = 7;
  float number = 2;
  cudaLaunchConfig_t config{};
  config.stream = stream_;
  EXPECT_EQ(cudaLaunchKernelEx(&config, add_to, x, number), cudaSuccess);
  number = 100;
  EXPECT_EQ(cudaMemcpyAsync(x + 1, x, sizeof(float), cudaMemcpyDeviceToDevice, stream_),
            cudaSuccess);
  EXPECT_EQ(x[0], 1);
  const cudaGraphExec_t graph = end();
  EXPECT_EQ(x[0], 1);
  EXPECT_EQ(x[1], 7);
  for (const float expected : {3.0F, 5.0F}) {
    EXPECT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
    EXPECT_EQ(x[0], expected);
    EXPECT_EQ(x[1], expected);
  }
  cudaMemsetAsync(x, 0, sizeof(float), stream_);  // late, and before the launch all the same
  cudaGraphLaunch(graph, stream_);
  EXPECT_EQ(x[0], 2);
  cudaGraphExecDestroy(graph);
}

TEST_F(Captured, AKernelThatFailsFailsTheLaunch) {
  cudaLaunchConfig_t config{};
  config.stream = stream_;
  EXPECT_EQ(cudaLaunchKernelEx(&config, set_to, other_memory_.as<float>() + 1, 1.0F), cudaSuccess);
  const cudaGraphExec_t graph = end();
  EXPECT_EQ(cudaGraphLaunch(graph, stream_), cudaErrorLaunchFailure);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorLaunchFailure),
               "out of bounds: wrote global memory at offset 4 of an allocation of 4 bytes");
  cudaGraphExecDestroy(graph);
}

TEST_F(Captured, RefusesToBeWaitedFor) {
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  expect_lost();
  begin();
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorStreamCaptureUnsupported);
  expect_lost();
}

TEST_F(Captured, RefusesMemoryOfTheDriver) {
  void* memory = nullptr;
  for (int call = 0; call < 4; ++call) {
    const cudaError_t error = call == 0   ? cudaMalloc(&memory, 4)
                              : call == 1 ? cudaFree(memory_.as<void>())
                              : call == 2 ? cudaMallocHost(&memory, 4)
                                          : cudaFreeHost(&memory);
    EXPECT_EQ(error, cudaErrorStreamCaptureUnsupported) << call;
    expect_lost();
    begin();
  }
}

/// cudaThreadExchangeStreamCaptureMode(): what a relaxed thread does is its own affair.
TEST_F(Captured, ARelaxedThreadMayAskForMemory) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  cudaThreadExchangeStreamCaptureMode(&mode);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  cudaGraphExecDestroy(end());
}

TEST_F(Captured, RefusesCopiesOfPageableMemory) {
  EXPECT_EQ(cudaMemcpyAsync(memory_.as<void>(), &number_, 4, cudaMemcpyHostToDevice, stream_),
            cudaErrorStreamCaptureUnsupported);
  expect_lost();
  begin();
  EXPECT_EQ(cudaMemcpyAsync(&number_, memory_.as<void>(), 4, cudaMemcpyDeviceToHost, stream_),
            cudaErrorStreamCaptureUnsupported);
  expect_lost();
  void* pinned = nullptr;
  cudaMallocHost(&pinned, 4);
  begin();
  EXPECT_EQ(cudaMemcpyAsync(memory_.as<void>(), pinned, 4, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  cudaGraphExecDestroy(end());
  cudaFreeHost(pinned);
}

/// The legacy stream waits for blocking streams, and so does not go with the capture of one.
TEST_F(Captured, ABlockingOneRefusesTheLegacyStream) {
  EXPECT_EQ(cudaMemcpy(memory_.as<void>(), &number_, 4, cudaMemcpyHostToDevice), cudaSuccess);
  cudaStream_t blocking = nullptr;
  cudaStreamCreateWithFlags(&blocking, 0);
  cudaLaunchConfig_t config{};
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  for (int call = 0; call < 5; ++call) {
    cudaStreamBeginCapture(blocking, kThreadLocal);
    const cudaError_t error =
        call == 0   ? cudaMemcpy(memory_.as<void>(), &number_, 4, cudaMemcpyHostToDevice)
        : call == 1 ? cudaMemset(memory_.as<void>(), 0, 4)
        : call == 2 ? cudaLaunchKernelEx(&config, add_to, memory_.as<float>(), 1.0F)
        : call == 3 ? cudaEventRecord(event, nullptr)
                    : cudaStreamSynchronize(nullptr);
    EXPECT_EQ(error, cudaErrorStreamCaptureImplicit) << call;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_EQ(*memory_.as<float>(), 5);
  cudaEventDestroy(event);
  cudaStreamDestroy(blocking);
}

TEST_F(Captured, RefusesAnEventOfOutside) {
  cudaEvent_t outside = nullptr, inside = nullptr;
  cudaEventCreateWithFlags(&outside, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&inside, cudaEventDisableTiming);
  cudaEventRecord(outside, cuda::stream());
  EXPECT_EQ(cudaEventRecord(inside, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, inside), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(cuda::stream(), inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, outside), cudaErrorStreamCaptureIsolation);
  expect_lost();
  EXPECT_EQ(cudaStreamWaitEvent(stream_, outside), cudaSuccess);
  cudaEventDestroy(outside);
  cudaEventDestroy(inside);
}

TEST_F(Captured, StartsOnceAndEndsOnce) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, kThreadLocal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamBeginCapture(stream_, kThreadLocal), cudaErrorIllegalState);
  cudaGraphExecDestroy(end());
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamEndCapture(nullptr, &graph), cudaErrorIllegalState);
}

// --- recording ---

/// What a step used is not handed to others while it may be replayed, and is afterwards.
TEST(CudaRecording, KeepsItsMemory) {
  cuda::CudaAllocator& memory = cuda::gpu_memory();
  constexpr size_t kBytes = 12345 * 256;  // a size of its own
  std::vector<void*> used;
  memory.free(memory.allocate(kBytes), kBytes);
  const int64_t pool = memory.start_recording();
  for (int i = 0; i < 2; ++i) {
    used.push_back(memory.allocate(kBytes));
    memory.free(used.back(), kBytes);
  }
  EXPECT_EQ(used[0], used[1]);
  void* kept = memory.allocate(kBytes);
  EXPECT_EQ(kept, used[0]);
  memory.stop_recording();
  void* other = memory.allocate(kBytes);
  EXPECT_NE(other, kept);
  memory.free(kept, kBytes);  // freed when nothing is recorded, and still not everybody's
  void* another = memory.allocate(kBytes);
  EXPECT_NE(another, kept);
  memory.give_up(pool);
  EXPECT_EQ(memory.allocate(kBytes), kept);
  for (void* each : {other, another, kept}) {
    memory.free(each, kBytes);
  }
}

TEST(CudaRecording, MayNeedMemoryThatNobodyHadBefore) {
  kernels::Backend& backend = kernels::backend(gpu());
  const Tensor x = on_gpu(std::vector<float>(54321, 1.0F));
  Tensor sum;
  const auto recording = backend.record([&] {
    sum = Tensor::empty(x.shape(), DType::f32, gpu());
    backend.add(x, x, sum);
  });
  EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(54321, 2.0F));
}

/// What would not happen again at a replay is refused, and nothing is left of the attempt.
TEST(CudaRecording, RefusesTheHost) {
  kernels::Backend& backend = kernels::backend(gpu());
  Tensor x = on_gpu({1});
  const std::string copy =
      "[cuda] a step that is recorded can't copy from or to the host: a replay would not";
  EXPECT_EQ(failure([&] { backend.record([&] { x.to(kCpu); }); }), copy);
  EXPECT_EQ(failure([&] { backend.record([&] { on_gpu({2}); }); }), copy);
  EXPECT_EQ(failure([&] { backend.record([&] { backend.wait(); }); }),
            "[cuda] waiting for the GPU failed: operation not permitted when stream is capturing");
  Tensor sum = on_gpu({0});
  backend.add(x, x, sum);
  EXPECT_EQ(sum.to_vector<float>(), std::vector<float>{2});
}

}  // namespace
}  // namespace headroom::testing
