// Whole files, read and written so that a reader never sees half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace headroom {

/// A regular file open for reading. It stays the same file when another takes its name meanwhile.
/// Every error is an InputError that names the path.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// Reads exactly `count` bytes from `offset` on; the file's end coming first is an error.
  void read(uint64_t offset, void* to, size_t count) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// The bytes of a regular file. Throws InputError naming the path when it can't be read.
std::string read_file(const std::filesystem::path& path);

/// Writes beside `path`, flushes to the disk, renames over it and flushes the folder: after a kill
/// or a full disk the previous file is whole and no temporary is left. Throws Error naming the
/// path.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// The same for content made in pieces: `produce` is handed a function that appends bytes.
using Append = std::function<void(const void* bytes, size_t count)>;
void write_file(const std::filesystem::path& path,
                const std::function<void(const Append&)>& produce);

}  // namespace headroom
