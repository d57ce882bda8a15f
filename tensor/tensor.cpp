// Storage, views and copies. Memory comes from the device's allocator and goes back to it.
#include "tensor/tensor.h"

#include <type_traits>
#include <utility>

#include "tensor/allocator.h"
#include "tensor/memory_watch.h"

namespace headroom {

Tensor::Storage::Storage(size_t size, Device where)
    : bytes(size), device(where), memory(allocator(where).allocate(size)) {}

Tensor::Storage::Storage(std::shared_ptr<void> lent)
    : bytes(0), device(kCpu), memory(lent.get()), lender(std::move(lent)) {}

Tensor::Storage::~Storage() {
  if (lender == nullptr) {
    allocator(device).free(memory, bytes);
  }
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  check(static_cast<size_t>(shape.numel()) <= SIZE_MAX / 2 / size_of(dtype),
        "[tensor] no memory holds {} {} elements", shape.numel(), name_of(dtype));
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.storage_ = std::make_shared<Storage>(t.nbytes(), device);
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  t.zero();
  return t;
}

Tensor Tensor::over(std::shared_ptr<void> memory, const Shape& shape, DType dtype) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.storage_ = std::make_shared<Storage>(std::move(memory));
  return t;
}

Device Tensor::device() const {
  check(defined(), "[tensor] a tensor without memory is on no device");
  return storage_->device;
}

void Tensor::throw_other_type(DType asked) const {
  check(defined(), "[tensor] asked for the data of a tensor without memory");
  throw Error(fmt::format("[tensor] asked for {} data of a {} tensor of shape {}", name_of(asked),
                          name_of(dtype_), shape_));
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(shape.numel() == numel(), "[reshape] the number of elements must stay: {} to {}", shape_,
        shape);
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  check(rank() > 0 && 0 <= begin && begin <= end && end <= dim(0),
        "[rows] range {}..{} of shape {}", begin, end, shape_);
  std::array<int64_t, Shape::kMaxRank> dims{};
  std::copy(shape_.dims().begin(), shape_.dims().end(), dims.begin());
  const int64_t row_bytes = dim(0) == 0 ? 0 : static_cast<int64_t>(nbytes()) / dim(0);
  dims[0] = end - begin;
  Tensor view = *this;
  view.shape_ = Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank())));
  view.offset_ += begin * row_bytes;
  return view;
}

Tensor Tensor::clone() const {
  Tensor copy = empty(shape_, dtype_, device());
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::to(Device target) const {
  if (target == device()) {
    return *this;
  }
  Tensor copy = empty(shape_, dtype_, target);
  copy.copy_from(*this);
  return copy;
}

void Tensor::copy_from(const Tensor& from) {
  check(from.shape_ == shape_ && from.dtype_ == dtype_, "[copy] {} {} into {} {}",
        name_of(from.dtype_), from.shape_, name_of(dtype_), shape_);
  const auto copy = [](Tensor& to, const Tensor& source) {
    // The device that is not the host knows how to copy between the two.
    const Device driver = to.device() == kCpu ? source.device() : to.device();
    allocator(driver).copy(to.raw(), to.device(), source.raw(), source.device(), to.nbytes());
  };
  if (MemoryWatch* watch = MemoryWatch::current(); watch != nullptr) [[unlikely]] {
    watch->run("copy", nbytes(), [copy, to = *this, from]() mutable { copy(to, from); });
  } else {
    copy(*this, from);
  }
}

void Tensor::zero() {
  const auto clear = [](Tensor& x) { allocator(x.device()).zero(x.raw(), x.nbytes()); };
  if (MemoryWatch* watch = MemoryWatch::current(); watch != nullptr) [[unlikely]] {
    watch->run("zero", nbytes(), [clear, x = *this]() mutable { clear(x); });
  } else {
    clear(*this);
  }
}

double Tensor::item() const {
  check(numel() == 1, "[item] one element is needed: shape {}", shape_);
  return to_doubles(*this).front();
}

namespace {

template <class T>
std::vector<double> widen(const Tensor& x) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(x.numel()));
  for (const T value : x.to_vector<T>()) {
    if constexpr (std::is_arithmetic_v<T>) {
      values.push_back(static_cast<double>(value));
    } else {
      values.push_back(static_cast<double>(static_cast<float>(value)));
    }
  }
  return values;
}

}  // namespace

std::vector<double> to_doubles(const Tensor& x) {
  switch (x.dtype()) {
    case DType::f64:
      return x.to_vector<double>();
    case DType::f32:
      return widen<float>(x);
    case DType::bf16:
      return widen<bf16>(x);
    case DType::f16:
      return widen<f16>(x);
    case DType::i8:
      return widen<int8_t>(x);
    case DType::i32:
      return widen<int32_t>(x);
  }
  throw Error("[tensor] unknown element type");
}

}  // namespace headroom
