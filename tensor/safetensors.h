// The safetensors file format: an 8-byte little-endian header length, a JSON header, then raw
// bytes. https://huggingface.co/docs/safetensors
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/file.h"
#include "tensor/tensor.h"

namespace headroom {

/// A larger header is refused before it is read (the limit of the reference implementation).
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsInfo {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t begin, end;  // bytes from the start of the data
};

/// Reads a file whose every field has been checked: nothing in it is trusted, nothing large is
/// allocated before its bytes are known to exist. Errors are InputError and name the file and the
/// tensor or field.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);
  const std::filesystem::path& path() const { return file_->path(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, SafetensorsInfo>& tensors() const { return tensors_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  /// Reads one tensor as stored.
  Tensor read(const std::string& name) const;

 private:
  std::shared_ptr<const InputFile> file_;
  uint64_t data_start_ = 0;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, SafetensorsInfo> tensors_;
};

/// Writes atomically (tensor/file.h), one tensor at a time, the widest element types first so that
/// each is aligned in the file. Same input, same bytes.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace headroom
