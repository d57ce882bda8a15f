// Checks a safetensors header while it is parsed, event by event: no JSON tree is built, so a
// hostile header costs no more memory than the entries it lists.
#include "tensor/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tensor/check.h"

namespace headroom::safetensors {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxElements = uint64_t{1} << 62;

class HeaderParser : public nlohmann::json_sax<json> {
 public:
  HeaderParser(std::string file, std::map<std::string, std::string>& metadata,
               std::map<std::string, SafetensorsInfo>& tensors)
      : file_(std::move(file)), metadata_(metadata), tensors_(tensors) {}

  bool null() override { return refuse("null"); }
  bool boolean(bool value) override { return refuse(value ? "true" : "false"); }
  bool number_float(double, const std::string& text) override { return refuse(text); }
  bool binary(json::binary_t&) override { return refuse("binary data"); }
  bool number_integer(int64_t value) override { return refuse(std::to_string(value)); }
  bool number_unsigned(uint64_t value) override;
  bool string(std::string& value) override;
  bool key(std::string& value) override;
  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    check_input(false, "{}: the header is not JSON: error near its byte {}", file_, position);
    return false;
  }

 private:
  enum class At { outside, header, metadata, tensor, list };

  /// What is being read, and what it may be.
  std::string subject() const;
  std::string_view allowed() const;
  bool refuse(std::string_view found) const {
    check_input(false, "{}: {} must be {}: found {}", file_, subject(), allowed(),
                in_quotes(found));
    return false;
  }
  void finish_tensor();

  const std::string file_;
  std::map<std::string, std::string>& metadata_;
  std::map<std::string, SafetensorsInfo>& tensors_;
  At at_ = At::outside;
  bool metadata_seen_ = false;
  std::string name_;  // of the tensor, or __metadata__
  std::string key_;   // within it
  std::optional<DType> dtype_;
  std::optional<std::vector<uint64_t>> shape_, offsets_;
};

std::string HeaderParser::subject() const {
  switch (at_) {
    case At::outside:
      return "the header";
    case At::header:
      return name_ == kMetadata ? name_ : "tensor " + in_quotes(name_);
    case At::metadata:
      return fmt::format("{} {}", kMetadata, in_quotes(key_));
    default:
      return fmt::format("tensor {}: {}", in_quotes(name_), key_);
  }
}

std::string_view HeaderParser::allowed() const {
  if (at_ == At::list) {
    return key_ == "shape" ? "at most 6 whole numbers from 0 to 2^62"
                           : "two whole numbers, begin and end";
  }
  if (at_ == At::metadata || key_ == "dtype") return "a string";
  return at_ == At::tensor ? "a list" : "an object";
}

bool HeaderParser::number_unsigned(uint64_t value) {
  if (at_ != At::list) return refuse(std::to_string(value));
  const bool is_shape = key_ == "shape";
  std::vector<uint64_t>& list = is_shape ? *shape_ : *offsets_;
  const size_t most = is_shape ? Shape::kMaxRank : 2;
  if (list.size() == most) return refuse("more than " + std::to_string(most));
  if (is_shape && value > kMaxElements) return refuse(std::to_string(value));
  list.push_back(value);
  return true;
}

bool HeaderParser::string(std::string& value) {
  if (at_ == At::metadata) {
    metadata_.emplace(key_, std::move(value));
    return true;
  }
  if (at_ != At::tensor || key_ != "dtype") return refuse(value);
  for (const auto& [name, dtype] : kFileTypes) {
    if (name == value) dtype_ = dtype;
  }
  check_input(dtype_.has_value(),
              "{}: tensor {}: dtype {} is not supported: it must be F64, F32, BF16, F16, I8 or I32",
              file_, in_quotes(name_), in_quotes(value));
  return true;
}

bool HeaderParser::key(std::string& value) {
  bool repeated = false;
  if (at_ == At::header) {
    name_ = value;
    key_.clear();
    repeated = value == kMetadata ? metadata_seen_ : tensors_.contains(value);
  } else {
    key_ = value;
    if (at_ == At::metadata) {
      repeated = metadata_.contains(value);
    } else {
      check_input(value == "dtype" || value == "shape" || value == "data_offsets",
                  "{}: tensor {}: unknown field {}: dtype, shape and data_offsets are allowed",
                  file_, in_quotes(name_), in_quotes(value));
      repeated = value == "dtype" ? dtype_.has_value()
                                  : (value == "shape" ? shape_ : offsets_).has_value();
    }
  }
  check_input(!repeated, "{}: {} appears twice", file_, subject());
  return true;
}

bool HeaderParser::start_object(size_t) {
  if (at_ == At::outside) {
    at_ = At::header;
  } else if (at_ == At::header) {
    const bool is_metadata = name_ == kMetadata;
    at_ = is_metadata ? At::metadata : At::tensor;
    metadata_seen_ = metadata_seen_ || is_metadata;
  } else {
    return refuse("an object");
  }
  return true;
}

bool HeaderParser::end_object() {
  if (at_ == At::tensor) finish_tensor();
  at_ = at_ == At::header ? At::outside : At::header;
  return true;
}

bool HeaderParser::start_array(size_t) {
  if (at_ != At::tensor || key_ == "dtype") return refuse("a list");
  (key_ == "shape" ? shape_ : offsets_).emplace();
  at_ = At::list;
  return true;
}

bool HeaderParser::end_array() {
  if (key_ == "data_offsets" && offsets_->size() < 2) {
    return refuse(fmt::format("{} numbers", offsets_->size()));
  }
  at_ = At::tensor;
  return true;
}

void HeaderParser::finish_tensor() {
  const std::string tensor = fmt::format("{}: tensor {}", file_, in_quotes(name_));
  check_input(dtype_.has_value(), "{}: dtype is missing", tensor);
  check_input(shape_.has_value(), "{}: shape is missing", tensor);
  check_input(offsets_.has_value(), "{}: data_offsets is missing", tensor);

  uint64_t elements = 1;  // without the zeros, so that they can't hide an overflow
  std::vector<int64_t> dims;
  for (const uint64_t size : *shape_) {
    check_input(size == 0 || elements <= kMaxElements / size,
                "{}: shape [{}] has more than 2^62 elements", tensor, fmt::join(*shape_, ", "));
    elements *= std::max<uint64_t>(size, 1);
    dims.push_back(static_cast<int64_t>(size));
  }
  const Shape shape{std::span<const int64_t>(dims)};
  const uint64_t begin = (*offsets_)[0], end = (*offsets_)[1];
  check_input(begin <= end, "{}: data_offsets begin at {}, past their end {}", tensor, begin, end);
  const uint64_t width = size_of(*dtype_);
  check_input(
      (end - begin) % width == 0 && (end - begin) / width == static_cast<uint64_t>(shape.numel()),
      "{}: {} bytes at data_offsets [{}, {}], but shape [{}] has {} elements of {} bytes", tensor,
      end - begin, begin, end, fmt::join(*shape_, ", "), shape.numel(), width);
  tensors_.emplace(name_, SafetensorsInfo{name_, *dtype_, shape, begin, end});
  dtype_.reset();
  shape_.reset();
  offsets_.reset();
}

/// Every byte of the data belongs to exactly one tensor.
void check_layout(const std::string& file, const std::map<std::string, SafetensorsInfo>& tensors,
                  uint64_t data_size) {
  std::vector<const SafetensorsInfo*> order;
  order.reserve(tensors.size());
  for (const auto& [name, info] : tensors) {
    check_input(info.end <= data_size,
                "{}: tensor {}: data_offsets end at {}, but the file has {} bytes of data", file,
                in_quotes(name), info.end, data_size);
    order.push_back(&info);
  }
  std::ranges::sort(order, {}, [](const auto* info) { return std::pair(info->begin, info->end); });
  uint64_t filled = 0;
  for (const SafetensorsInfo* info : order) {
    check_input(info->begin == filled,
                "{}: tensor {}: data_offsets begin at {}, {}: they must begin at {}", file,
                in_quotes(info->name), info->begin,
                info->begin < filled ? "inside another tensor" : "after a gap", filled);
    filled = info->end;
  }
  check_input(filled == data_size, "{}: the tensors end at byte {} of the data, which has {}", file,
              filled, data_size);
}

}  // namespace

/// For messages: a name as JSON, so that control characters are visible, and cut when it is long.
std::string in_quotes(std::string_view name) {
  constexpr size_t kLongest = 100;
  const std::string shown(name.substr(0, kLongest));
  return json(shown).dump(-1, ' ', false, json::error_handler_t::replace) +
         (name.size() > kLongest ? "..." : "");
}

void parse_header(const std::string& file, const std::string& text, uint64_t data_size,
                  std::map<std::string, std::string>& metadata,
                  std::map<std::string, SafetensorsInfo>& tensors) {
  check_input(!text.empty() && text[0] == '{',
              "{}: the header must be a JSON object: it begins with {}", file,
              in_quotes(text.substr(0, 1)));
  HeaderParser parser(file, metadata, tensors);
  json::sax_parse(text, &parser);
  check_layout(file, tensors, data_size);
}

}  // namespace headroom::safetensors
