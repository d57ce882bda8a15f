// Whole files, read and written so that a reader never sees half of one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace headroom {

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
