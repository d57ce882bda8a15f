// Sums and copies between GPUs by NCCL, whose calls never block (ncclConfig_t's blocking = 0):
// whoever waits looks after the other workers meanwhile.
#include "kernels/cuda/nccl_communicator.h"

#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "kernels/threads.h"
#include "tensor/check.h"

namespace headroom::kernels::cuda {

namespace {

/// An event that says how far one stream has come, for another one to wait for.
class Mark {
 public:
  Mark() {
    check_call(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  }
  ~Mark() { cudaEventDestroy(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /// What `later` is asked for from here on comes after all that `earlier` was asked for so far.
  void order(cudaStream_t earlier, cudaStream_t later) const {
    check_call(cudaEventRecord(event_, earlier), "recording an event");
    check_call(cudaStreamWaitEvent(later, event_, 0), "making a stream wait");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class Nccl final : public Communicator {
 public:
  explicit Nccl(Communicator& hosts) : hosts_(hosts) {
    check_call(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle(ncclCommInitRankConfig(&comm_, static_cast<int>(size()), shared_id(),
                                  static_cast<int>(rank()), &config),
           "ncclCommInitRankConfig");
    watch_while_waiting([this] { look(); });
  }
  /// All workers come here at their end. Nobody is there any more to hear of an error.
  ~Nccl() override {
    watch_while_waiting({});
    try {
      settle(ncclCommFinalize(comm_), "ncclCommFinalize");
      ncclCommDestroy(comm_);
    } catch (const Error&) {
      ncclCommAbort(comm_);
    }
    cudaStreamDestroy(stream_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  int64_t rank() const override { return hosts_.rank(); }
  int64_t size() const override { return hosts_.size(); }
  int64_t local_size() const override { return hosts_.local_size(); }
  int64_t local_rank() const override { return hosts_.local_rank(); }

  void begin_sum(const Tensor& x) override {
    if (x.device() == kCpu) {
      hosts_.begin_sum(x);
      return;
    }
    check(x.dtype() == DType::f32 || x.dtype() == DType::f64,
          "[nccl] sums are of f32 or f64, not {}", name_of(x.dtype()));
    const ncclDataType_t type = x.dtype() == DType::f64 ? ncclFloat64 : ncclFloat32;
    begin(x);
    // "leaves identical copies of result on each recvbuff" (Collective Communication Functions).
    settle(ncclAllReduce(x.raw(), pending_.back().raw(), static_cast<size_t>(x.numel()), type,
                         ncclSum, comm_, stream_),
           "ncclAllReduce");
  }

  /// The GPU goes on by itself.
  void progress() override { look(); }

  void finish() override {
    hosts_.finish();
    if (!pending_.empty()) {
      done_.order(stream_, cuda::stream());
      pending_.clear();  // whoever gets the memory next uses it after that
    }
  }

  void broadcast(const Tensor& x, int64_t from) override {
    if (x.device() == kCpu) {
      hosts_.broadcast(x, from);
      return;
    }
    begin(x);
    settle(ncclBroadcast(x.raw(), pending_.back().raw(), x.nbytes(), ncclInt8,
                         static_cast<int>(from), comm_, stream_),
           "ncclBroadcast");
    finish();
  }

  /// ncclCommAbort() could itself wait for the GPU, and the end of the process does as much.
  [[noreturn]] void abort(int status) override {
    hosts_.abort(status);
    std::_Exit(status);  // GCC 12 doesn't see through the virtual call that it never returns
  }

 private:
  /// What comes next on the communicator's stream finds in x what was computed so far.
  void begin(const Tensor& x) {
    ready_.order(cuda::stream(), stream_);
    pending_.push_back(x);
  }

  /// Worker 0 makes the id by which NCCL's workers find one another; the others get it.
  ncclUniqueId shared_id() const {
    ncclUniqueId id{};
    Tensor bytes = Tensor::zeros({NCCL_UNIQUE_ID_BYTES}, DType::i8, kCpu);
    if (rank() == 0) {
      require(ncclGetUniqueId(&id), "ncclGetUniqueId");
      std::memcpy(bytes.raw(), id.internal, sizeof id.internal);
    }
    hosts_.broadcast(bytes, 0);
    std::memcpy(id.internal, bytes.raw(), sizeof id.internal);
    return id;
  }

  void require(ncclResult_t result, const char* call) const {
    check(result == ncclSuccess, "[nccl] {} of worker {} failed: {} ({})", call, rank(),
          ncclGetErrorString(result), ncclGetLastError(comm_));
  }

  /// Waits until a call has done its part on the host: no other one may come before that
  /// ("Creating a communicator with options").
  void settle(ncclResult_t result, const char* call) const {
    while (result == ncclInProgress) {
      hosts_.progress();
      std::this_thread::sleep_for(std::chrono::microseconds(10));
      require(ncclCommGetAsyncError(comm_, &result), "ncclCommGetAsyncError");
    }
    require(result, call);
  }

  /// Throws where another worker has ended or can't be reached.
  void look() const {
    hosts_.progress();
    ncclResult_t state = ncclSuccess;
    require(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    require(state, "a sum or copy");
  }

  Communicator& hosts_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  Mark ready_, done_;
  std::vector<Tensor> pending_;  // keeps the memory of what is under way
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& hosts) {
  return std::make_unique<Nccl>(hosts);
}

}  // namespace headroom::kernels::cuda

namespace headroom::kernels {

/// NCCL packs its version as 10000 major + 100 minor + patch.
std::string nccl_name() {
  int version = 0;
  ncclGetVersion(&version);
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace headroom::kernels
