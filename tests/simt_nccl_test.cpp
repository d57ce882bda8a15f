// What NCCL's double refuses, as the library's User Guide says that the library does; and the
// communicator on it, between processes.
#include <gtest/gtest.h>
#include <nccl.h>

#include <csignal>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tensor/check.h"
#include "tests/contains.h"
#include "tests/run_program.h"
#include "tests/simt/workers.h"

namespace headroom::testing {
namespace {

using kernels::Communicator;
using Statuses = std::vector<int>;
constexpr int kRight = 7;  // the status of a worker that saw what it should

/// The communicator of one rank, all right until a test spoils it.
class NcclDouble : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ncclGetUniqueId(&id_), ncclSuccess);
    cudaMalloc(reinterpret_cast<void**>(&memory_), kBytes);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  void TearDown() override {
    if (comm_ != nullptr) {
      ncclCommDestroy(comm_);
    }
    cudaStreamDestroy(stream_);
    cudaFree(memory_);
    std::filesystem::remove_all(id_.internal);  // left behind where not all ranks came
  }
  ncclResult_t make(int rank = 0, int size = 1, int blocking = 1) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    return ncclCommInitRankConfig(&comm_, size, id_, rank, &config);
  }
  ncclResult_t sum(void* to, size_t count = kCount, ncclDataType_t type = ncclFloat32) {
    return ncclAllReduce(memory_, to, count, type, ncclSum, comm_, stream_);
  }
  ncclResult_t broadcast(int root) {
    return ncclBroadcast(memory_, memory_, kCount, ncclFloat32, root, comm_, stream_);
  }
  ncclResult_t state() {
    ncclResult_t result = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm_, &result), ncclSuccess);
    return result;
  }

  static constexpr size_t kCount = 5, kBytes = kCount * sizeof(float);
  ncclUniqueId id_{};
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  float* memory_ = nullptr;
};

TEST_F(NcclDouble, TakesWhatIsRight) {
  ASSERT_EQ(make(), ncclSuccess);
  EXPECT_EQ(sum(memory_), ncclSuccess);
  EXPECT_EQ(broadcast(0), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm_), ncclSuccess);
}

/// ncclCommInitRankConfig: "rank must be between 0 and nranks-1".
TEST_F(NcclDouble, RefusesARankBeyondTheOthers) {
  EXPECT_EQ(make(1, 1), ncclInvalidArgument);
  EXPECT_EQ(make(-1, 1), ncclInvalidArgument);
  EXPECT_EQ(make(0, 0), ncclInvalidArgument);  // no ranks at all
}

/// "... and unique within a communicator clique."
TEST_F(NcclDouble, RefusesARankTwice) {
  ASSERT_EQ(make(0, 2, 0), ncclInProgress);
  ncclComm_t first = comm_;
  EXPECT_EQ(make(0, 2, 0), ncclInvalidUsage);
  comm_ = first;
}

/// ncclCommInitRankConfig: the id is the one that ncclGetUniqueId() made, on one of the ranks.
TEST_F(NcclDouble, RefusesAnIdThatIsNone) {
  const ncclUniqueId real = std::exchange(id_, {"/nowhere"});
  EXPECT_EQ(make(), ncclInvalidArgument);
  id_ = real;
}

/// "ncclSystemError: A call to the system failed."
TEST_F(NcclDouble, RefusesAnIdWhereRanksCouldNotMeet) {
  const auto meets_nowhere = [](int64_t) {
    setenv("TMPDIR", "/nowhere", 1);
    ncclUniqueId id;
    return ncclGetUniqueId(&id) == ncclSystemError ? kRight : 1;
  };
  EXPECT_EQ(in_workers(1, meets_nowhere), Statuses(1, kRight));
}

/// ncclConfig_t: "blocking" is 0 or 1.
TEST_F(NcclDouble, RefusesToBlockInAnyOtherWay) {
  EXPECT_EQ(make(0, 1, 2), ncclInvalidArgument);
  EXPECT_EQ(make(0, 1, -1), ncclInvalidArgument);
}

/// ncclCommInitRankConfig: the config is one that NCCL_CONFIG_INITIALIZER made.
TEST_F(NcclDouble, RefusesAConfigOfZeros) {
  ncclConfig_t config{};
  EXPECT_EQ(ncclCommInitRankConfig(&comm_, 1, id_, 0, &config), ncclInvalidArgument);
}

/// "Creating a communicator with options": a call that returned ncclInProgress must have come to
/// its end before the next one.
TEST_F(NcclDouble, RefusesACallBeforeTheLastOneIsThrough) {
  ASSERT_EQ(make(0, 1, 0), ncclInProgress);
  EXPECT_EQ(sum(memory_), ncclInvalidArgument);
  while (state() == ncclInProgress) {
  }
  EXPECT_EQ(sum(memory_), ncclInProgress);
}

/// ncclCommInitRank() "implicitly synchronizes with other ranks".
TEST_F(NcclDouble, StartsNoSoonerThanAllRanksHaveCome) {
  ASSERT_EQ(make(0, 2, 0), ncclInProgress);
  for (int looks = 0; looks < 100; ++looks) {
    ASSERT_EQ(state(), ncclInProgress);
  }
  EXPECT_EQ(sum(memory_), ncclInvalidArgument);
}

/// "Fault Tolerance": ncclRemoteError is "remote process exited"; it is the communicator's state
/// from then on, and what every later call returns.
TEST_F(NcclDouble, RefusesWhateverComesAfterARankIsGone) {
  const Statuses statuses = in_workers(2, [this](int64_t rank) {
    if (make(static_cast<int>(rank), 2) != ncclSuccess || rank == 1) {
      return 1;
    }
    EXPECT_EQ(sum(memory_), ncclSuccess);
    cudaStreamSynchronize(stream_);
    const bool told = state() == ncclRemoteError && sum(memory_) == ncclRemoteError &&
                      broadcast(0) == ncclRemoteError && ncclCommFinalize(comm_) == ncclRemoteError;
    ncclCommDestroy(comm_);
    return told ? kRight : 2;
  });
  EXPECT_EQ(statuses, (Statuses{kRight, 1}));
}

/// "Data Pointers": NCCL's buffers are CUDA's memory.
TEST_F(NcclDouble, RefusesTheHostsMemoryAndTooShortBuffers) {
  ASSERT_EQ(make(), ncclSuccess);
  float host[kCount];
  EXPECT_EQ(sum(host), ncclInvalidArgument);
  EXPECT_EQ(sum(memory_, kCount + 1), ncclInvalidArgument);
}

/// "Types": ncclDataType_t.
TEST_F(NcclDouble, RefusesATypeThatIsNone) {
  ASSERT_EQ(make(), ncclSuccess);
  EXPECT_EQ(sum(memory_, 1, static_cast<ncclDataType_t>(99)), ncclInvalidArgument);
}

/// "Types": ncclRedOp_t.
TEST_F(NcclDouble, RefusesAnOperationThatIsNone) {
  ASSERT_EQ(make(), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(memory_, memory_, kCount, ncclFloat32, static_cast<ncclRedOp_t>(99),
                          comm_, stream_),
            ncclInvalidArgument);
}

/// ncclBroadcast: root is a rank of the communicator.
TEST_F(NcclDouble, RefusesARootThatIsNoRank) {
  ASSERT_EQ(make(), ncclSuccess);
  EXPECT_EQ(broadcast(1), ncclInvalidArgument);
  EXPECT_EQ(broadcast(-1), ncclInvalidArgument);
}

/// ncclCommFinalize: afterwards the communicator is only to be destroyed.
TEST_F(NcclDouble, RefusesSumsAfterTheEnd) {
  ASSERT_EQ(make(), ncclSuccess);
  ASSERT_EQ(ncclCommFinalize(comm_), ncclSuccess);
  EXPECT_EQ(sum(memory_), ncclInvalidUsage);
  ASSERT_EQ(ncclCommDestroy(comm_), ncclSuccess);
  EXPECT_EQ(sum(memory_), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comm_), ncclInvalidArgument);
  ncclResult_t result = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm_, &result), ncclInvalidArgument);
  comm_ = nullptr;
}

/// "Collective Operations": every rank calls with the same count and type, or it never ends.
TEST_F(NcclDouble, NoticesRanksThatDisagree) {
  const Statuses statuses = in_workers(2, [this](int64_t rank) {
    if (make(static_cast<int>(rank), 2) != ncclSuccess ||
        sum(memory_, rank == 0 ? kCount : kCount - 1) != ncclSuccess) {
      return 1;
    }
    cudaStreamSynchronize(stream_);
    const int status = state() == ncclInvalidUsage ? kRight : 2;
    ncclCommDestroy(comm_);
    return status;
  });
  EXPECT_EQ(statuses, Statuses(2, kRight));
}

template <class T>
std::vector<T> numbers_of(int64_t rank, int64_t count) {
  std::vector<T> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), static_cast<T>(rank * 1000));
  return numbers;
}

/// What was asked of the GPU before the sum is in it, and what is asked of it after finish() sees
/// it: the doubled runtime does copies as late as it may.
template <class T>
bool sums(Communicator& workers, int64_t count) {
  const Tensor source = Tensor::from(numbers_of<T>(workers.rank(), count), {count}).to(gpu());
  const Tensor x = Tensor::zeros({count}, source.dtype(), gpu()), copy = x.clone();
  Tensor(x).copy_from(source);
  workers.begin_sum(x);
  workers.progress();
  workers.finish();
  Tensor(copy).copy_from(x);
  std::vector<T> expected = numbers_of<T>(0, count);
  for (int64_t rank = 1; rank < workers.size(); ++rank) {
    const auto other = numbers_of<T>(rank, count);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] += other[i];
    }
  }
  return copy.to(kCpu).template to_vector<T>() == expected;
}

TEST(WorkersOnGpus, Sum) {
  for (const int64_t size : {2, 4}) {
    const Statuses statuses = meet(size, [](Communicator& workers) {
      return sums<float>(workers, 1) && sums<float>(workers, 1001) && sums<double>(workers, 33)
                 ? kRight
                 : 1;
    });
    EXPECT_EQ(statuses, Statuses(static_cast<size_t>(size), kRight));
  }
}

TEST(WorkersOnGpus, GetWhatAnyOfThemHasOnEitherMemory) {
  const Statuses statuses = meet(3, [](Communicator& workers) {
    for (const Device device : {gpu(), kCpu}) {
      for (int64_t from = 0; from < workers.size(); ++from) {
        const Tensor own = Tensor::from(numbers_of<float>(workers.rank(), 101), {101}).to(device);
        const Tensor x = Tensor::zeros({101}, DType::f32, device);
        Tensor(x).copy_from(own);
        workers.broadcast(x, from);
        if (x.to(kCpu).to_vector<float>() != numbers_of<float>(from, 101)) {
          return 1;
        }
      }
    }
    return kernels::sum_over(workers, 2) == 6 ? kRight : 2;
  });
  EXPECT_EQ(statuses, Statuses(3, kRight));
}

/// The second one ends all or dies while the first one starts NCCL, which waits for it.
TEST(WorkersOnGpus, NoticeOneThatFailsBeforeNcclHasStarted) {
  for (const bool killed : {false, true}) {
    const TemporaryFolder folder;  // what the double leaves there, when a rank is ended, goes too
    const int port = free_port();
    const Statuses statuses = in_workers(2, [&](int64_t rank) {
      setenv("TMPDIR", folder.path().c_str(), 1);
      gpu();
      const auto hosts = kernels::cpu::make_tcp_communicator(place_of(rank, 2, port));
      if (rank == 1) {
        const Tensor id = Tensor::zeros({NCCL_UNIQUE_ID_BYTES}, DType::i8, kCpu);
        hosts->broadcast(id, 0);
        killed ? void(raise(SIGKILL)) : hosts->abort(kRight);
      }
      try {
        kernels::cuda::make_nccl_communicator(*hosts);
      } catch (const Error& error) {
        return killed && contains(error.what(), "worker 1 has ended") ? kRight : 2;
      }
      return 1;
    });
    EXPECT_EQ(statuses, (Statuses{kRight, killed ? 128 + SIGKILL : kRight}));
  }
}

/// It waits for its own GPU alone, which waits for the other one's.
TEST(WorkersOnGpus, NoticeOneThatIsKilled) {
  const Statuses statuses = meet(2, [](Communicator& workers) {
    sums<float>(workers, 3);
    kernels::meet(workers);
    if (workers.rank() == 1) {
      raise(SIGKILL);
    }
    try {
      sums<float>(workers, 3);
      sums<float>(workers, 3);
    } catch (const Error& error) {
      return contains(error.what(), "worker 1 has ended") ||
                     contains(error.what(), "rank 1 is gone")
                 ? kRight
                 : 2;
    }
    return 1;
  });
  EXPECT_EQ(statuses, (Statuses{kRight, 128 + SIGKILL}));
}

}  // namespace
}  // namespace headroom::testing
