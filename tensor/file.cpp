// Reading and replacing whole files with POSIX calls, every result checked.
//
// A file NAME is written as NAME.PID.N.headroom-tmp in the same folder and renamed once it is on
// the disk, so a name that ends in ".headroom-tmp" is never a finished file. The writer holds a
// lock (flock) on its temporary; a killed writer's lock is gone, and the next write of the same
// NAME removes what it left.
#include "tensor/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "tensor/check.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  bool open() const { return fd_ >= 0; }
  int get() const { return fd_; }
  /// Closes now; false with errno set when the system reports a late write error.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

constexpr std::string_view kTemporary = ".headroom-tmp";

/// Removes the temporaries of `target` whose writers are gone. A courtesy: failures are ignored.
void remove_stale(const fs::path& target) {
  const std::string prefix = target.filename().string() + ".";
  std::error_code ignored;
  fs::directory_iterator entry(target.parent_path(), ignored);
  for (; entry != fs::directory_iterator(); entry.increment(ignored)) {
    const fs::path& path = entry->path();
    const std::string name = path.filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kTemporary)) continue;
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (file.open() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

/// Where `path` leads: a link keeps pointing where it does and what it points to is replaced.
fs::path destination(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : path;
  if (!error || error == std::errc::no_such_file_or_directory) target = fs::absolute(target, error);
  check(!error && target.has_filename(), "{}: can't be written: {}", path.string(),
        error ? error.message() : "it is not a file name");
  return target;
}

/// A file that takes the target's name on commit() and disappears without it.
class Replacement {
 public:
  explicit Replacement(const fs::path& path) : path_(path), target_(destination(path)) {
    // Renaming over a device such as /dev/null would destroy it.
    std::error_code ignored;
    const fs::file_status status = fs::status(target_, ignored);
    check(!fs::exists(status) || fs::is_regular_file(status),
          "{}: can't be written: it exists and is not a regular file", path_.string());
    remove_stale(target_);
    while (!create()) {
    }
  }
  ~Replacement() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void append(const void* bytes, size_t count) {
    const char* next = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t written = ::write(file_->get(), next, count);
      if (written < 0 && errno == EINTR) continue;
      require(written > 0, "writing");
      next += written;
      count -= static_cast<size_t>(written);
    }
  }

  void commit() {
    require(::fsync(file_->get()) == 0, "flushing");
    require(::rename(temporary_.c_str(), target_.c_str()) == 0, "renaming the finished file");
    temporary_.clear();
    require(file_->close(), "closing");
    const Descriptor folder(
        ::open(target_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    require(folder.open(), "opening its folder");
    // A few network file systems can't flush a folder and say EINVAL.
    require(::fsync(folder.get()) == 0 || errno == EINVAL, "flushing its folder");
  }

 private:
  /// False when the name is taken, or when a cleaner removed the file before it was locked.
  bool create() {
    static std::atomic<unsigned> serial{0};
    const std::string name =
        fmt::format("{}.{}.{}{}", target_.string(), ::getpid(), serial++, kTemporary);
    Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.open() && errno == EEXIST) return false;
    require(file.open(), "creating a file beside it");
    struct stat status {};
    // Where locks don't exist nobody can take this one either, so nothing is cleaned there.
    while (::flock(file.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
    if (::fstat(file.get(), &status) == 0 && status.st_nlink == 0) return false;
    temporary_ = name;
    file_.emplace(std::move(file));
    return true;
  }

  void require(bool ok, const char* what) const {
    check(ok, "{}: can't be written: {} failed: {}", path_.string(), what, std::strerror(errno));
  }

  fs::path path_;
  fs::path target_;
  std::string temporary_;
  std::optional<Descriptor> file_;
};

}  // namespace

InputFile::InputFile(fs::path path) : path_(std::move(path)) {
  const auto require = [this](bool ok) {
    check_input(ok, "{}: can't be read: {}", path_.string(), std::strerror(errno));
  };
  struct stat status {};
  require(::stat(path_.c_str(), &status) == 0);
  // Asked before opening, because opening a pipe waits for its other end.
  check_input(S_ISREG(status.st_mode), "{}: can't be read: it is not a regular file",
              path_.string());
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor_ >= 0);
  const bool known = ::fstat(descriptor_, &status) == 0;
  const int error = errno;
  if (!known) ::close(descriptor_);
  errno = error;
  require(known);
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(uint64_t offset, void* to, size_t count) const {
  char* next = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, next, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    check_input(got >= 0, "{}: can't be read: {}", path_.string(), std::strerror(errno));
    check_input(got > 0, "{}: can't be read: it ends at byte {}, {} bytes early", path_.string(),
                offset, count);
    next += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<size_t>(got);
  }
}

std::string read_file(const fs::path& path) {
  const InputFile file(path);
  std::string bytes;
  try {
    bytes.resize(file.size());
  } catch (const std::exception&) {
    check_input(false, "{}: can't be read: its {} bytes don't fit in memory", path.string(),
                file.size());
  }
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

void write_file(const fs::path& path, std::string_view bytes) {
  write_file(path, [bytes](const Append& append) { append(bytes.data(), bytes.size()); });
}

void write_file(const fs::path& path, const std::function<void(const Append&)>& produce) {
  Replacement file(path);
  produce([&file](const void* bytes, size_t count) { file.append(bytes, count); });
  file.commit();
}

}  // namespace headroom
