// Sums and copies between processes by MPI's nonblocking collectives.
#include "kernels/cpu/mpi_communicator.h"

#define OMPI_SKIP_MPICXX 1  // the C++ bindings, which MPI has dropped
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/threads.h"
#include "tensor/check.h"

namespace headroom::kernels::cpu {

namespace {

void require(int result, const char* call) {
  if (result != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(result, text, &length);
    throw Error(fmt::format("[mpi] {}: {}", call, std::string(text, static_cast<size_t>(length))));
  }
}

int count_of(const Tensor& x, int64_t elements) {
  check(elements <= std::numeric_limits<int>::max(),
        "[mpi] a tensor {} is too large for one message", x.shape());
  return static_cast<int>(elements);
}

class Mpi final : public Communicator {
 public:
  Mpi() {
    int level = 0;
    // Only the thread that trains calls MPI; OpenMP's others don't.
    require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    require(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    require(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    MPI_Comm here = MPI_COMM_NULL;
    require(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here),
            "MPI_Comm_split_type");
    require(MPI_Comm_size(here, &local_size_), "MPI_Comm_size");
    require(MPI_Comm_rank(here, &local_rank_), "MPI_Comm_rank");
    MPI_Comm_free(&here);
  }
  ~Mpi() override { MPI_Finalize(); }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  int64_t local_size() const override { return local_size_; }
  int64_t local_rank() const override { return local_rank_; }

  void begin_sum(const Tensor& x) override {
    check(x.dtype() == DType::f32 || x.dtype() == DType::f64,
          "[mpi] sums are of f32 or f64, not {}", name_of(x.dtype()));
    const bool wide = x.dtype() == DType::f64;
    Tensor memory = x;
    void* data = wide ? static_cast<void*>(memory.data<double>()) : memory.data<float>();
    // Every rank gets the same bits (MPI 3.1, section 5.9.1, advice to implementors).
    requests_.emplace_back();
    require(
        MPI_Iallreduce(MPI_IN_PLACE, data, count_of(x, x.numel()), wide ? MPI_DOUBLE : MPI_FLOAT,
                       MPI_SUM, MPI_COMM_WORLD, &requests_.back()),
        "MPI_Iallreduce");
    pending_.push_back(std::move(memory));
  }

  void progress() override { done(requests_); }

  void finish() override {
    wait(requests_);
    requests_.clear();
    pending_.clear();
  }

  void broadcast(const Tensor& x, int64_t from) override {
    Tensor memory = x;
    std::vector<MPI_Request> request(1);
    require(MPI_Ibcast(memory.raw(), count_of(x, static_cast<int64_t>(x.nbytes())), MPI_BYTE,
                       static_cast<int>(from), MPI_COMM_WORLD, request.data()),
            "MPI_Ibcast");
    wait(request);
  }

  [[noreturn]] void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  static bool done(std::vector<MPI_Request>& requests) {
    int all = 0;
    require(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE),
        "MPI_Testall");
    return all != 0;
  }

  /// MPI_Wait would keep a core busy, and the others may evaluate or save for minutes on it.
  static void wait(std::vector<MPI_Request>& requests) {
    using namespace std::chrono_literals;
    constexpr int kEager = 2000;
    for (int tries = 0; !done(requests); ++tries) {
      if (tries < kEager) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(tries < 2 * kEager ? 50us : 1ms);
      }
    }
  }

  int rank_ = 0, size_ = 1, local_size_ = 1, local_rank_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Tensor> pending_;  // keeps the memory of the sums under way
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator() { return std::make_unique<Mpi>(); }

}  // namespace headroom::kernels::cpu

namespace headroom::kernels {

std::string mpi_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<size_t>(length));
  return whole.substr(0, whole.find(','));
}

}  // namespace headroom::kernels
