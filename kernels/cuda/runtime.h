// What the host asks of the CUDA runtime, checked; and the stream that everything runs on.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace headroom::kernels::cuda {

/// Throws an Error that names `what` where a call of the runtime failed.
void check_call(cudaError_t error, const char* what);

/// The stream on which this process's kernels, copies and products run one after another, so that
/// none waits for the host. A stream of its own: the default stream can't be captured in a graph.
cudaStream_t stream();

/// Waits until everything asked for so far is done. Throws what went wrong in it.
void synchronize();
/// The same for what came before an event.
void wait_for(cudaEvent_t event);

/// What is called again and again while this process waits for its GPU, which may itself be waiting
/// for another worker: it throws where that is in vain. An empty function ends it.
void watch_while_waiting(std::function<void()> look);
bool is_watched();

}  // namespace headroom::kernels::cuda
