// Workers that know one address: what their variables say, how they meet, sum and end.
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "contains.h"
#include "kernels/cpu/tcp_communicator.h"
#include "tensor/check.h"
#include "worker_processes.h"

namespace headroom::testing {
namespace {

using kernels::Communicator;
using kernels::WorkerPlace;
using kernels::cpu::make_tcp_communicator;
using Variables = std::map<std::string, std::string>;
using Statuses = std::vector<int>;
using namespace std::chrono_literals;

constexpr int kRight = 7;  // the status of a worker that saw what it should

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The place that these variables and no others give.
std::optional<WorkerPlace> place_with(const Variables& variables) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  return kernels::worker_place();
}

const Variables kTorchrun = {{"RANK", "5"},          {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},    {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "one"}, {"MASTER_PORT", "29500"}};
const Variables kSrun = {{"SLURM_PROCID", "5"},  {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"MASTER_ADDR", "one"}, {"MASTER_PORT", "29500"}};

TEST(WorkerPlace, IsWhatTorchrunsVariablesSay) {
  const std::optional<WorkerPlace> place = place_with(kTorchrun);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->address, "one");
  EXPECT_EQ(place->port, 29501);
}

TEST(WorkerPlace, IsWhatSrunsVariablesSayWithAnAddress) {
  const std::optional<WorkerPlace> place = place_with(kSrun);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->size, 7);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 2);
  Variables without = kSrun;
  without.erase("MASTER_ADDR");
  EXPECT_FALSE(place_with(without));
}

TEST(WorkerPlace, IsNoneForOneAlone) {
  EXPECT_FALSE(place_with({}));
  EXPECT_FALSE(place_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(place_with({{"SLURM_STEP_NUM_TASKS", "1"}, {"MASTER_ADDR", "one"}}));
  EXPECT_FALSE(place_with({{"SLURM_NTASKS", "8"}, {"MASTER_ADDR", "one"}}));  // a batch script
}

TEST(WorkerPlace, NamesTheVariableThatIsMissing) {
  for (const Variables& all : {kTorchrun, kSrun}) {
    const bool torchrun = all.contains("RANK");
    const std::string size = torchrun ? "WORLD_SIZE" : "SLURM_STEP_NUM_TASKS";
    for (const auto& [name, value] : all) {
      Variables some = all;
      some.erase(name);
      const std::string message = refusal([&] { place_with(some); });
      if (name == size && torchrun) {
        EXPECT_EQ(message, "RANK is 5, but WORLD_SIZE is not set: every worker needs both");
      } else if (name == size || (name == "MASTER_ADDR" && !torchrun)) {
        EXPECT_EQ(message, "");
      } else {
        EXPECT_EQ(message, fmt::format("{} is {}, but {} is not set: every worker needs both", size,
                                       all.at(size), name));
      }
    }
  }
}

TEST(WorkerPlace, NamesTheVariableThatIsWrong) {
  const auto message = [](Variables all, const std::string& name, const std::string& value) {
    all[name] = value;
    return refusal([&] { place_with(all); });
  };
  EXPECT_EQ(message(kTorchrun, "WORLD_SIZE", "all"),
            "WORLD_SIZE is 'all', but must be a whole number from 1 on");
  EXPECT_EQ(message(kTorchrun, "RANK", "8"),
            "RANK is 8, but WORLD_SIZE is 8: workers are numbered from 0 to 7");
  EXPECT_EQ(message(kTorchrun, "RANK", "-1"), "RANK is '-1', but must be a whole number from 0 on");
  EXPECT_EQ(message(kTorchrun, "LOCAL_RANK", "4"),
            "LOCAL_RANK is 4, but LOCAL_WORLD_SIZE is 4: workers are numbered from 0 to 3");
  EXPECT_EQ(message(kTorchrun, "LOCAL_WORLD_SIZE", "9"),
            "LOCAL_WORLD_SIZE is '9', but must be a whole number from 1 to 8");
  EXPECT_EQ(message(kTorchrun, "MASTER_PORT", "65535"),
            "MASTER_PORT is '65535', but must be a whole number from 1 to 65534");
  EXPECT_EQ(message(kSrun, "SLURM_STEP_TASKS_PER_NODE", "2(x3),one"),
            "SLURM_STEP_TASKS_PER_NODE is 'one', but must be a whole number from 1 on");
}

/// All workers of a communicator, each in a process.
Statuses meet(int64_t size, const std::function<int(Communicator&)>& work) {
  const int port = free_port();
  return in_workers(size, [&](int64_t rank) {
    const auto workers = make_tcp_communicator(place_of(rank, size, port), 20s);
    return work(*workers);
  });
}

/// Numbers of which no sum is exact, others on every worker.
template <class T>
std::vector<T> numbers_of(int64_t rank, size_t count) {
  std::vector<T> numbers;
  for (size_t i = 0; i < count; ++i) {
    numbers.push_back(T(1) / static_cast<T>(3 + i) + static_cast<T>(rank) / T(7));
  }
  return numbers;
}

template <class T>
bool sums(Communicator& workers, size_t count) {
  const auto own = numbers_of<T>(workers.rank(), count);
  const Tensor x = Tensor::from(own, {static_cast<int64_t>(count)});
  workers.begin_sum(x);
  workers.finish();
  std::vector<T> expected = numbers_of<T>(0, count);
  for (int64_t rank = 1; rank < workers.size(); ++rank) {
    const auto other = numbers_of<T>(rank, count);
    for (size_t i = 0; i < count; ++i) {
      expected[i] += other[i];
    }
  }
  return x.to_vector<T>() == expected;
}

TEST(WorkersByAddress, SumToTheSameBits) {
  for (const int64_t size : {2, 3, 5}) {
    const Statuses statuses = meet(size, [](Communicator& workers) {
      return sums<float>(workers, 1) && sums<double>(workers, 7) && sums<float>(workers, 100'001)
                 ? kRight
                 : 1;
    });
    EXPECT_EQ(statuses, Statuses(static_cast<size_t>(size), kRight));
  }
}

TEST(WorkersByAddress, GetWhatAnyOfThemHas) {
  const Statuses statuses = meet(3, [](Communicator& workers) {
    for (int64_t from = 0; from < 3; ++from) {
      const Tensor x = Tensor::from(numbers_of<float>(workers.rank(), 1001), {1001});
      workers.broadcast(x, from);
      if (x.to_vector<float>() != numbers_of<float>(from, 1001)) {
        return 1;
      }
    }
    return kRight;
  });
  EXPECT_EQ(statuses, Statuses(3, kRight));
}

/// kRight where `work` throws an Error with this part.
int throws_with(std::string_view part, const std::function<void()>& work) {
  const std::string message = refusal(work);
  if (contains(message, part)) {
    return kRight;
  }
  std::fprintf(stderr, "'%s'\n", message.c_str());
  return 1;
}

TEST(WorkersByAddress, RefuseSumsOfDifferentSizes) {
  const Statuses statuses = meet(2, [](Communicator& workers) {
    const auto sum = [&] { sums<float>(workers, workers.rank() == 0 ? 4 : 5); };
    return workers.rank() == 0
               ? throws_with("[workers] worker 1 sent 20 bytes where this one expects 16", sum)
               : throws_with("[workers] worker 0 has come to its end", sum);
  });
  EXPECT_EQ(statuses, Statuses(2, kRight));
}

TEST(WorkersByAddress, NameTheOneThatNeverComes) {
  const int port = free_port();
  const Statuses statuses = in_workers(2, [&](int64_t rank) {
    const std::string where = fmt::format("127.0.0.1:{}", port);
    return rank == 0 ? throws_with(
                           fmt::format("after 0.5 seconds at {}, the port after MASTER_PORT, 1 of "
                                       "3 workers have not come: 2",
                                       where),
                           [&] { make_tcp_communicator(place_of(0, 3, port), 500ms); })
                     : throws_with(fmt::format("worker 0, at {}, ended before all had come", where),
                                   [&] { make_tcp_communicator(place_of(1, 3, port), 5s); });
  });
  EXPECT_EQ(statuses, Statuses(2, kRight));
}

TEST(WorkersByAddress, NameTheFirstWhereItIsNotThere) {
  const int port = free_port();
  const std::string message = refusal([&] { make_tcp_communicator(place_of(1, 2, port), 200ms); });
  EXPECT_EQ(message, fmt::format("after 0.2 seconds worker 0 can't be reached at 127.0.0.1:{}, the "
                                 "port after MASTER_PORT: Connection refused",
                                 port));
  WorkerPlace nowhere = place_of(1, 2, port);
  nowhere.address = "no such machine";
  EXPECT_TRUE(
      contains(refusal([&] { make_tcp_communicator(nowhere, 200ms); }),
               "MASTER_ADDR is 'no such machine', which is no machine's name or address: "));
}

TEST(WorkersByAddress, RefuseTwoOfOneNumberOrOfDifferentSizes) {
  const int port = free_port();
  const auto first = [&](std::string_view part) {
    return throws_with(part, [&] { make_tcp_communicator(place_of(0, 3, port), 20s); });
  };
  const auto other = [&](int64_t size) {
    return throws_with("ended before all had come",
                       [&] { make_tcp_communicator(place_of(1, size, port), 20s); });
  };
  EXPECT_EQ(in_workers(3,
                       [&](int64_t rank) {
                         return rank == 0 ? first("as worker 1: each needs a RANK of its own")
                                          : other(3);
                       }),
            Statuses(3, kRight));
  EXPECT_EQ(in_workers(2,
                       [&](int64_t rank) {
                         return rank == 0 ? first("WORLD_SIZE is 3 in worker 0, but 2 in worker 1")
                                          : other(2);
                       }),
            Statuses(2, kRight));
}

TEST(WorkersByAddress, NoticeOneThatIsKilled) {
  for (const int64_t victim : {0, 1}) {
    const Statuses statuses = meet(2, [&](Communicator& workers) {
      sums<float>(workers, 3);
      if (workers.rank() == victim) {
        raise(SIGKILL);
      }
      return throws_with(
          fmt::format("[workers] worker {} has ended without a word: was it killed?", victim),
          [&] { sums<float>(workers, 3); });
    });
    EXPECT_EQ(statuses[static_cast<size_t>(victim)], 128 + SIGKILL);
    EXPECT_EQ(statuses[static_cast<size_t>(1 - victim)], kRight);
  }
}

TEST(WorkersByAddress, EndTogetherWithTheStatusOfOne) {
  constexpr int kStatus = 3;
  for (const int64_t failing : {0, 2}) {
    const Statuses statuses = meet(3, [&](Communicator& workers) -> int {
      if (workers.rank() == failing) {
        workers.abort(kStatus);
      }
      while (true) {
        workers.progress();
      }
    });
    EXPECT_EQ(statuses, Statuses(3, kStatus));
  }
}

}  // namespace
}  // namespace headroom::testing
