// The safetensors files themselves: lengths, bytes and the header that is written.
#include "tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "tensor/check.h"
#include "tensor/safetensors_header.h"

namespace headroom {
namespace {

using nlohmann::json;
using safetensors::in_quotes;
using safetensors::kFileTypes;
using safetensors::kMetadata;

static_assert(std::endian::native == std::endian::little,
              "safetensors stores little-endian numbers");

/// A JSON string. Throws Error when `text` is not UTF-8, which JSON can't hold.
std::string json_string(const std::filesystem::path& path, std::string_view text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw Error(
        fmt::format("{}: can't be written: {} is not UTF-8", path.string(), in_quotes(text)));
  }
}

using NamedTensor = std::pair<std::string, Tensor>;

std::string make_header(const std::filesystem::path& path,
                        const std::vector<const NamedTensor*>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  const auto separate = [&header](char last) { header += header.back() == last ? "" : ","; };
  if (!metadata.empty()) {
    header += fmt::format("\"{}\":{{", kMetadata);
    for (const auto& [key, value] : metadata) {
      separate('{');
      header += json_string(path, key) + ":" + json_string(path, value);
    }
    header += "}";
  }
  uint64_t begin = 0;
  for (const NamedTensor* named : tensors) {
    const Tensor& tensor = named->second;
    const auto type =
        std::ranges::find(kFileTypes, tensor.dtype(), [](auto t) { return t.second; });
    const uint64_t end = begin + tensor.nbytes();
    separate('{');
    header += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          json_string(path, named->first), type->first,
                          fmt::join(tensor.shape().dims(), ","), begin, end);
    begin = end;
  }
  header += "}";
  header.append(-header.size() % 8, ' ');
  check(header.size() <= kMaxSafetensorsHeader,
        "{}: can't be written: its header of {} bytes would pass the limit of {}", path.string(),
        header.size(), kMaxSafetensorsHeader);
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : file_(std::make_shared<const InputFile>(std::move(path))) {
  const std::string file = this->path().string();
  uint64_t length = 0;
  check_input(file_->size() >= sizeof length,
              "{}: not a safetensors file: {} bytes can't hold the 8 of the header's length", file,
              file_->size());
  file_->read(0, &length, sizeof length);
  const uint64_t rest = file_->size() - sizeof length;
  check_input(
      length <= rest,
      "{}: header length {} passes the {} bytes that follow: the file is cut short or not a "
      "safetensors file",
      file, length, rest);
  check_input(length <= kMaxSafetensorsHeader, "{}: header length {} passes the limit of {} bytes",
              file, length, kMaxSafetensorsHeader);
  check_input(length > 0, "{}: header length 0: there is no header", file);
  try {
    std::string header(length, '\0');
    file_->read(sizeof length, header.data(), header.size());
    safetensors::parse_header(file, header, rest - length, metadata_, tensors_);
  } catch (const std::bad_alloc&) {
    check_input(false, "{}: the entries of its header of {} bytes don't fit in memory", file,
                length);
  }
  data_start_ = sizeof length + length;
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const auto found = tensors_.find(name);
  check_input(found != tensors_.end(), "{}: has no tensor {}", path().string(), in_quotes(name));
  const SafetensorsInfo& info = found->second;
  Tensor tensor = Tensor::empty(info.shape, info.dtype);
  file_->read(data_start_ + info.begin, tensor.raw(), tensor.nbytes());
  return tensor;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  std::set<std::string_view> names = {kMetadata};
  for (const NamedTensor& named : tensors) {
    check(named.second.defined(), "{}: can't be written: tensor {} has no memory", path.string(),
          in_quotes(named.first));
    check(names.insert(named.first).second, "{}: can't be written: tensor name {} is taken already",
          path.string(), in_quotes(named.first));
    order.push_back(&named);
  }
  std::ranges::stable_sort(order, std::greater(),
                           [](const auto* named) { return size_of(named->second.dtype()); });
  const std::string header = make_header(path, order, metadata);
  const uint64_t length = header.size();
  write_file(path, [&](const Append& append) {
    append(&length, sizeof length);
    append(header.data(), header.size());
    for (const NamedTensor* named : order) {
      const Tensor host = named->second.to(kCpu);
      append(host.raw(), host.nbytes());
    }
  });
}

}  // namespace headroom
