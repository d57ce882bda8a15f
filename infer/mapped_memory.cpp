// mmap, and the two ways to tell the system what comes next.
#include "infer/mapped_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "tensor/check.h"

namespace headroom::infer {

namespace {

class File {
 public:
  explicit File(const std::filesystem::path& folder) : folder_(folder) {
    std::string name = (folder / "headroom-cache-XXXXXX").string();
    descriptor_ = mkostemp(name.data(), O_CLOEXEC);
    require(descriptor_ >= 0 ? 0 : errno, "make a file");
    unlink(name.c_str());
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void reserve(size_t bytes) const {
    require(posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes)),
            fmt::format("reserve {} bytes", bytes));
  }
  void* map(size_t bytes) const {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    require(memory != MAP_FAILED ? 0 : errno, fmt::format("map {} bytes", bytes));
    return memory;
  }

 private:
  void require(int error, const std::string& what) const {
    check(error == 0, "[cache] can't {} in {} (TMPDIR chooses the folder): {}", what,
          folder_.string(), std::generic_category().message(error));
  }

  std::filesystem::path folder_;
  int descriptor_;
};

/// Advises on the pages of [from, from + bytes); the first and the last one count only when
/// `partly`.
void advise(void* from, size_t bytes, int advice, bool partly) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(from), end = begin + bytes;
  const uintptr_t before = partly ? 0 : page - 1, after = partly ? page - 1 : 0;
  const uintptr_t first = (begin + before) / page * page, last = (end + after) / page * page;
  if (first < last) {
    // Advice that is not taken costs speed only.
    madvise(
        static_cast<char*>(from) + (static_cast<intptr_t>(first) - static_cast<intptr_t>(begin)),
        last - first, advice);
  }
}

}  // namespace

std::shared_ptr<void> map_temporary_file(size_t bytes) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  check(!error, "[cache] place=file needs a folder for its file: TMPDIR names none ({})",
        error.message());
  const File file(folder);
  const size_t size = bytes == 0 ? 1 : bytes;
  file.reserve(size);
  return {file.map(size), [size](void* memory) { munmap(memory, size); }};
}

void let_go(void* from, size_t bytes) { advise(from, bytes, MADV_DONTNEED, false); }

void bring_back(void* from, size_t bytes) { advise(from, bytes, MADV_WILLNEED, true); }

}  // namespace headroom::infer
