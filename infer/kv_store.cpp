// Allocating slots by type and place, and writing rows into them.
#include "infer/kv_store.h"

#include "infer/mapped_memory.h"

namespace headroom::infer {

namespace {

/// The type of a tensor that holds such numbers.
DType element_type(configs::KVType type) {
  switch (type) {
    case configs::KVType::f64:
      return DType::f64;
    case configs::KVType::f32:
      return DType::f32;
    case configs::KVType::bf16:
      return DType::bf16;
    case configs::KVType::f16:
      return DType::f16;
    case configs::KVType::int8:
    case configs::KVType::int4:
      return DType::i8;
  }
  throw Error("[cache] a type that no tensor holds");
}

}  // namespace

KVStore::KVStore(const configs::KVShape& shape, int64_t slots, const Storage& storage,
                 Device device)
    : shape_(shape),
      place_(storage.place),
      k_(make_rows(slots, shape.key_size, storage.types.k, device)) {
  if (!shape.value_in_key) {
    v_ = make_rows(slots, shape.value_size, storage.types.v, device);
  }
}

KVStore::Rows KVStore::make_rows(int64_t slots, int64_t width, configs::KVType type,
                                 Device device) const {
  const DType element = element_type(type);
  const bool coded = element == DType::i8;
  const int64_t bits = type == configs::KVType::int4 ? 4 : 8;
  const int64_t elements = coded ? (width * bits + 7) / 8 : width;
  Rows rows{.values = zeros({slots, shape_.heads, elements}, element, device), .code = {}};
  if (coded) {
    constexpr int64_t kGroup = kernels::KVCode::kGroup;
    const Shape scales{slots, shape_.heads, (width + kGroup - 1) / kGroup};
    rows.code = {.scales = zeros(scales, DType::bf16, device), .bits = bits};
  }
  return rows;
}

Tensor KVStore::zeros(const Shape& shape, DType dtype, Device device) const {
  if (place_ != Place::file) {
    return Tensor::zeros(shape, dtype, place_ == Place::host ? kCpu : device);
  }
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  return Tensor::over(map_temporary_file(bytes), shape, dtype);
}

void KVStore::write(const Tensor& k, const Tensor& v, int64_t row, int64_t slot, int64_t count) {
  kernels::Backend& backend = kernels::backend(k.device());
  backend.store_kv(k.rows(row, row + count), k_.values, k_.code, slot);
  if (v_.values.defined()) {
    backend.store_kv(v.rows(row, row + count), v_.values, v_.code, slot);
  }
}

void KVStore::copy(int64_t from, int64_t to, int64_t count) {
  for (const Part& part : parts()) {
    part.tensor.rows(to, to + count).copy_from(part.tensor.rows(from, from + count));
  }
}

void KVStore::show(kernels::KVView& view) const {
  view.k = k_.values;
  view.k_code = k_.code;
  view.v = v_.values;
  view.v_code = v_.code;
  view.value_size = shape_.value_size;
}

int64_t KVStore::bytes() const {
  size_t sum = 0;
  for (const Part& part : parts()) {
    sum += part.tensor.nbytes();
  }
  return static_cast<int64_t>(sum);
}

std::vector<KVStore::Part> KVStore::parts() const {
  std::vector<Part> parts = {{"k", k_.values},
                             {"k_scales", k_.code.scales},
                             {"v", v_.values},
                             {"v_scales", v_.code.scales}};
  std::erase_if(parts, [](const Part& part) { return !part.tensor.defined(); });
  return parts;
}

void KVStore::bring_back() const {
  if (place_ == Place::file) {
    for (Part& part : parts()) {
      infer::bring_back(part.tensor.raw(), part.tensor.nbytes());
    }
  }
}

void KVStore::let_go() const {
  if (place_ == Place::file) {
    for (Part& part : parts()) {
      infer::let_go(part.tensor.raw(), part.tensor.nbytes());
    }
  }
}

}  // namespace headroom::infer
