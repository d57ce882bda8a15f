// Steps captured as CUDA graphs: CUDA C++ Programming Guide, "Creating a Graph Using Stream
// Capture".
#include "kernels/cuda/cuda_allocator.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/runtime.h"

namespace headroom::kernels::cuda {

namespace {

/// What a recorded step's kernels use, from the moment that recording starts.
class Memory {
 public:
  Memory() : pool_(gpu_memory().start_recording()) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { gpu_memory().give_up(pool_); }

 private:
  int64_t pool_;
};

/// A graph that the stream can be given.
class Graph final : public Recording {
 public:
  explicit Graph(const std::function<void()>& step) {
    const cudaGraph_t captured = capture(step);
    gpu_memory().stop_recording();
    const cudaError_t made = cudaGraphInstantiate(&graph_, captured, 0);
    cudaGraphDestroy(captured);
    check_call(made, "making a graph of a recorded step");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  /// If the stream still has it to do, it is freed after that (CUDA Runtime API,
  /// cudaGraphExecDestroy), and what its memory is used for next comes later in the stream.
  ~Graph() override { cudaGraphExecDestroy(graph_); }

  void replay() override { check_call(cudaGraphLaunch(graph_, stream()), "replaying a step"); }

 private:
  /// Other threads may go on with what they do.
  static cudaGraph_t capture(const std::function<void()>& step) {
    check_call(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal),
               "starting to record a step");
    cudaGraph_t captured = nullptr;
    try {
      step();
    } catch (...) {
      cudaStreamEndCapture(stream(), &captured);
      if (captured != nullptr) {
        cudaGraphDestroy(captured);
      }
      cudaGetLastError();  // or the next launch would report it
      throw;
    }
    check_call(cudaStreamEndCapture(stream(), &captured), "recording a step");
    return captured;
  }

  Memory memory_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<Recording> CudaBackend::record(const std::function<void()>& step) {
  auto graph = std::make_unique<Graph>(step);
  graph->replay();  // nothing that was captured has run
  return graph;
}

}  // namespace headroom::kernels::cuda
