// NCCL's double, between processes. What a rank contributes to the n-th operation lies in a file as
// soon as it is called; what comes of it is computed when its stream gets there. A rank that lives
// holds a lock.
//
// Section names are those of the NCCL User Guide.
#include "nccl.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/simt/host_keeps_out.h"

namespace fs = std::filesystem;

/// What must be the same on all ranks of an operation, but for the rank and its numbers.
struct Call {
  enum class Kind : int { sum, copy } kind;
  ncclDataType_t type;
  size_t count;
  int root;
  bool operator==(const Call&) const = default;
};

struct ncclComm {
  fs::path folder;
  int rank = 0, size = 0;
  bool blocking = true;
  int lock = -1;           // held as long as this rank lives
  int64_t operations = 0;  // called so far
  int busy = 0;            // so many looks until the last call has done its part
  bool met = false;        // all ranks have come
  bool finalized = false;
  ncclResult_t state = ncclSuccess;  // of what is under way
};

namespace {

constexpr unsigned kMagic = 0xcafebeef;
constexpr int kLooks = 2;

struct Library {
  std::set<ncclComm_t> alive;
  std::string last_error;
};
Library& library() {
  static Library instance;
  return instance;
}

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  library().last_error = why;
  return result;
}

size_t size_of(ncclDataType_t type) {
  return type == ncclFloat64 ? sizeof(double) : type == ncclFloat32 ? sizeof(float) : 1;
}
std::string describe(const Call& call) {
  return fmt::format("{} of {} numbers of type {} from {}",
                     call.kind == Call::Kind::sum ? "a sum" : "a copy", call.count,
                     static_cast<int>(call.type), call.root);
}

fs::path file_of(const ncclComm& comm, int64_t operation, int rank) {
  return comm.folder / fmt::format("{}.{}", operation, rank);
}

/// Whether another rank's process has ended, or given its communicator up.
bool is_gone(const ncclComm& comm, int rank) {
  const fs::path path = comm.folder / fmt::format("lives.{}", rank);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const bool gone = file >= 0 && flock(file, LOCK_SH | LOCK_NB) == 0;
  if (file >= 0) {
    close(file);
  }
  return gone;
}

/// "ncclCommInitRank implicitly synchronizes with other ranks": false until all have come. One that
/// never comes is waited for without end.
bool look_for_others(ncclComm& comm) {
  for (int rank = 0; rank < comm.size && !comm.met; ++rank) {
    if (!fs::exists(comm.folder / fmt::format("lives.{}", rank))) {
      return false;
    }
  }
  comm.met = true;
  return true;
}

/// Takes the rank: the file that its process holds a lock on as long as it lives appears with the
/// lock on it, or others would take a rank that has just come for one that is gone. Negative, with
/// errno, where there is no such folder or the rank is taken.
int claim(const ncclComm& comm) {
  const fs::path path = comm.folder / fmt::format("lives.{}", comm.rank);
  std::string unlocked = path.string() + ".XXXXXX";
  const int file = mkostemp(unlocked.data(), O_CLOEXEC);
  if (file < 0) {
    return file;
  }
  flock(file, LOCK_EX);
  const bool linked = link(unlocked.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(unlocked.c_str());
  if (!linked) {
    close(file);
    errno = error;
    return -1;
  }
  return file;
}

/// Appears whole or not at all.
void write(const fs::path& path, const Call& call, const void* numbers) {
  const fs::path unfinished = path.string() + ".new";
  std::ofstream file(unfinished, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&call), sizeof call);
  file.write(static_cast<const char*>(numbers),
             static_cast<std::streamsize>(call.count * size_of(call.type)));
  file.close();
  fs::rename(unfinished, path);
}

std::vector<char> read(const fs::path& path, Call& call) {
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(&call), sizeof call);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
void add(void* sum, const std::vector<char>& other, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, other.data() + i * sizeof(T), sizeof(T));
    static_cast<T*>(sum)[i] = static_cast<T*>(sum)[i] + value;
  }
}

/// One rank's part of the result; ranks come in their order, so that all get the same bits.
void take(const Call& call, int rank, const std::vector<char>& numbers, void* to) {
  const bool first = call.kind == Call::Kind::sum ? rank == 0 : rank == call.root;
  if (first) {
    std::memcpy(to, numbers.data(), numbers.size());
  } else if (call.kind == Call::Kind::sum) {
    call.type == ncclFloat64 ? add<double>(to, numbers, call.count)
                             : add<float>(to, numbers, call.count);
  }
}

/// False where the rank's process ends without having called the operation.
bool wait_for(const ncclComm& comm, int64_t operation, int rank) {
  const fs::path path = file_of(comm, operation, rank);
  while (!fs::exists(path)) {
    if (is_gone(comm, rank)) {
      return fs::exists(path);
    }
    usleep(200);
  }
  return true;
}

/// What the GPU does when the operation's turn comes. A collective whose ranks disagree, or of
/// which one is missing, really never ends ("Collective Operations": "need to be called for each
/// rank ... using the same count and the same datatype"); here the communicator's state says so at
/// once.
void complete(ncclComm& comm, int64_t operation, const Call& own, void* to) {
  for (int rank = 0; rank < comm.size && comm.state == ncclSuccess; ++rank) {
    if (!wait_for(comm, operation, rank)) {
      comm.state = refuse(ncclRemoteError, fmt::format("rank {} is gone", rank));
      return;
    }
    Call call{};
    const std::vector<char> numbers = read(file_of(comm, operation, rank), call);
    if (call != own) {
      comm.state =
          refuse(ncclInvalidUsage,
                 fmt::format("operation {} is {} on rank {}, but {} on rank {}: it never ends",
                             operation, describe(own), comm.rank, describe(call), rank));
      return;
    }
    take(call, rank, numbers, to);
  }
}

/// "Creating a communicator with options": a communicator that never blocks must be asked for its
/// state until it is ncclSuccess before anything else is called.
ncclResult_t begin(ncclComm_t comm) {
  if (!library().alive.contains(comm)) {
    return refuse(ncclInvalidArgument, "no communicator, or one that was destroyed or aborted");
  }
  if (!comm->met || comm->busy > 0) {
    return refuse(ncclInvalidArgument, "the call before has not returned ncclSuccess yet");
  }
  if (comm->finalized) {
    return refuse(ncclInvalidUsage, "the communicator was finalized");
  }
  return comm->state;
}

ncclResult_t end(ncclComm& comm) {
  comm.busy = comm.blocking ? 0 : kLooks;
  return comm.blocking ? ncclSuccess : ncclInProgress;
}

/// Both kinds. The contribution is what lies there when the stream has done all it was asked for.
ncclResult_t collective(ncclComm_t comm, const Call& call, const void* send, void* receive,
                        cudaStream_t stream) {
  if (const ncclResult_t ready = begin(comm); ready != ncclSuccess) {
    return ready;
  }
  // "Types": the data types that exist. Of them the double knows those of ncclDataType_t above.
  if (call.type != ncclInt8 && call.type != ncclFloat32 && call.type != ncclFloat64) {
    return refuse(ncclInvalidArgument, "no such data type");
  }
  // "Collective Communication Functions": a buffer is the device's memory, of the whole count.
  const size_t bytes = call.count * size_of(call.type);
  if (!simt::is_device_memory(send, bytes) || !simt::is_device_memory(receive, bytes)) {
    return refuse(ncclInvalidArgument, "a buffer is not the device's memory, or too short");
  }
  // What a GPU would do by itself while its host waits for another one's.
  simt::run_pending(stream);
  const int64_t operation = comm->operations++;
  {
    const simt::DeviceAtWork at_work;
    const std::string numbers(static_cast<const char*>(send), bytes);  // not the system's to read
    write(file_of(*comm, operation, comm->rank), call, numbers.data());
  }
  simt::enqueue(stream, [=] {
    if (library().alive.contains(comm)) {  // ncclCommAbort() "aborts any operations"
      complete(*comm, operation, call, receive);
    }
  });
  return end(*comm);
}

/// Who leaves last takes the folder along.
void forget(ncclComm_t comm) {
  close(comm->lock);
  bool last = true;
  for (int rank = 0; rank < comm->size; ++rank) {
    last = last && is_gone(*comm, rank);
  }
  if (last) {
    std::error_code ignored;  // another one was last at the same time
    fs::remove_all(comm->folder, ignored);
  }
  library().alive.erase(comm);
  delete comm;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::error_code error;
  std::string folder = (fs::temp_directory_path(error) / "simt-nccl-XXXXXX").string();
  if (error || folder.size() >= NCCL_UNIQUE_ID_BYTES || mkdtemp(folder.data()) == nullptr) {
    return refuse(ncclSystemError, "no folder for temporary files");
  }
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, folder.data(), folder.size());
  return ncclSuccess;
}

/// "Communicator Creation and Management Functions": "rank must be between 0 and nranks-1 and
/// unique within a communicator clique"; a config must come from NCCL_CONFIG_INITIALIZER.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (nranks < 1 || rank < 0 || rank >= nranks) {
    return refuse(ncclInvalidArgument, fmt::format("rank {} of {}", rank, nranks));
  }
  if (config->magic != kMagic || config->blocking < 0 || config->blocking > 1) {
    return refuse(ncclInvalidArgument, "a config that NCCL_CONFIG_INITIALIZER did not make");
  }
  auto* made = new ncclComm{.folder = id.internal, .rank = rank, .size = nranks};
  made->blocking = config->blocking == 1;
  made->lock = claim(*made);
  if (made->lock < 0) {
    const bool taken = errno == EEXIST;
    delete made;
    return taken ? refuse(ncclInvalidUsage, fmt::format("there is a rank {} already", rank))
                 : refuse(ncclInvalidArgument, "an id that ncclGetUniqueId() did not make");
  }
  library().alive.insert(made);
  *comm = made;
  while (made->blocking && !look_for_others(*made)) {
    usleep(200);
  }
  return end(*made);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t ready = begin(comm); ready != ncclSuccess) {
    return ready;
  }
  comm->finalized = true;
  return end(*comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!library().alive.contains(comm)) {
    return refuse(ncclInvalidArgument, "no communicator, or one that was destroyed or aborted");
  }
  forget(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return library().last_error.c_str(); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (!library().alive.contains(comm)) {
    return refuse(ncclInvalidArgument, "no communicator, or one that was destroyed or aborted");
  }
  const bool busy = !look_for_others(*comm) || (comm->busy > 0 && --comm->busy > 0);
  *state = busy ? ncclInProgress : comm->state;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  // "Types": the operations that exist. Of them the double knows those of ncclRedOp_t.
  if (op != ncclSum) {
    return refuse(ncclInvalidArgument, "no such operation");
  }
  return collective(comm, {Call::Kind::sum, type, count, 0}, send, receive, stream);
}

/// "ncclBroadcast": "root is the rank" where the data is, one of the communicator's.
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  if (library().alive.contains(comm) && (root < 0 || root >= comm->size)) {
    return refuse(ncclInvalidArgument, fmt::format("root {} of {} ranks", root, comm->size));
  }
  return collective(comm, {Call::Kind::copy, type, count, root}, send, receive, stream);
}
