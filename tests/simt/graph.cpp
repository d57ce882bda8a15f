// Stream capture of the CUDA runtime's double. What a captured stream is asked for is kept, with
// the parameters it had then, and done at every launch of the graph.
//
// Refused is what CUDA C++ Programming Guide, "CUDA Graphs", "Creating a Graph Using Stream
// Capture" forbids under "Prohibited and Unhandled Operations"; and as "Invalidation" there says,
// the graph is lost with it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/simt/stream.h"

struct CUgraph_st {
  std::vector<std::function<cudaError_t()>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::function<cudaError_t()>> nodes;
};

namespace simt {
namespace {

std::vector<cudaStream_t>& captured_streams() {
  static std::vector<cudaStream_t> streams;
  return streams;
}

/// Of the thread; the harness has one.
cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

unsigned& launches() {
  static unsigned count = 0;
  return count;
}

cudaError_t refuse(cudaStream_t stream, cudaError_t error) {
  stream->capture->valid = false;
  return note(error);
}

}  // namespace

unsigned graph_launches() { return launches(); }

/// "further use of any streams which are being captured [...] is invalid and will return an error"
cudaError_t capture(cudaStream_t stream, std::function<cudaError_t()> node) {
  if (!stream->capture->valid) {
    return note(cudaErrorStreamCaptureInvalidated);
  }
  stream->capture->nodes.push_back(std::move(node));
  return cudaSuccess;
}

/// cudaThreadExchangeStreamCaptureMode(): a thread with a capture under way that is not relaxed "is
/// prohibited from potentially unsafe API calls", such as cudaMalloc(), unless it is made relaxed
/// itself.
cudaError_t unsafe_call() {
  for (const cudaStream_t stream : captured_streams()) {
    if (stream->capture->mode != cudaStreamCaptureModeRelaxed &&
        thread_mode != cudaStreamCaptureModeRelaxed) {
      return refuse(stream, cudaErrorStreamCaptureUnsupported);
    }
  }
  return cudaSuccess;
}

/// "when any stream in the same context is being captured, and it was not created with
/// cudaStreamNonBlocking, any attempted use of the legacy stream is invalid"
cudaError_t legacy_stream_call() {
  for (const cudaStream_t stream : captured_streams()) {
    if (stream->blocking) {
      return refuse(stream, cudaErrorStreamCaptureImplicit);
    }
  }
  return cudaSuccess;
}

/// "It is invalid to synchronize or query the execution status of a stream which is being captured"
cudaError_t wait_call(cudaStream_t stream) {
  if (stream == nullptr) {
    return legacy_stream_call();
  }
  return stream->capture == nullptr ? cudaSuccess
                                    : refuse(stream, cudaErrorStreamCaptureUnsupported);
}

}  // namespace simt

/// cudaStreamBeginCapture(): "Capture may not be initiated if stream is cudaStreamLegacy. [...] it
/// may only be initiated if the stream is not already in capture mode."
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr) {
    return simt::note(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->capture != nullptr) {
    return simt::note(cudaErrorIllegalState);
  }
  stream->capture = std::make_unique<simt::Capture>(simt::Capture{mode, true, {}});
  simt::captured_streams().push_back(stream);
  return cudaSuccess;
}

/// "If capture was invalidated, due to a violation of the rules of stream capture, then a NULL
/// graph will be returned."
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream == nullptr || stream->capture == nullptr) {
    return simt::note(cudaErrorIllegalState);
  }
  const std::unique_ptr<simt::Capture> capture = std::move(stream->capture);
  std::erase(simt::captured_streams(), stream);
  if (!capture->valid) {
    return simt::note(cudaErrorStreamCaptureInvalidated);
  }
  *graph = new CUgraph_st{std::move(capture->nodes)};
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, simt::thread_mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *made = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

/// The nodes of one captured stream are a chain.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  ++simt::launches();
  return simt::run_in_order(stream, [nodes = graph->nodes] {
    for (const auto& node : nodes) {
      if (const cudaError_t error = node(); error != cudaSuccess) {
        return error;
      }
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

/// "It is invalid to wait on a non-captured event from a stream which is being captured without
/// specifying the cudaEventWaitExternal flag." Elsewhere the stream waits for what the event was
/// last recorded for, whatever it is recorded for afterwards; the host doesn't wait.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (stream != nullptr && stream->capture != nullptr) {
    return event->captured == stream->capture.get()
               ? cudaSuccess
               : simt::refuse(stream, cudaErrorStreamCaptureIsolation);
  }
  if (event->captured != nullptr) {
    return simt::note(cudaErrorCapturedEvent);
  }
  if (event->stream != nullptr) {
    simt::enqueue(stream, [mark = *event] { simt::run_until(mark.stream, mark.after); });
  }
  return cudaSuccess;
}
