// Allocating slots by type and place, and writing rows into them.
#include "infer/kv_store.h"

#include <numeric>

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
      device_(device),
      k_(make_rows(slots, shape.key_size, storage.types.k)) {
  if (!shape.value_in_key) {
    v_ = make_rows(slots, shape.value_size, storage.types.v);
  }
}

KVStore::Rows KVStore::make_rows(int64_t slots, int64_t width, configs::KVType type) const {
  const DType element = element_type(type);
  const bool coded = element == DType::i8;
  const int64_t bits = type == configs::KVType::int4 ? 4 : 8;
  const int64_t elements = coded ? (width * bits + 7) / 8 : width;
  Rows rows{.values = zeros({slots, shape_.heads, elements}, element), .code = {}};
  if (coded) {
    constexpr int64_t kGroup = kernels::KVCode::kGroup;
    const Shape scales{slots, shape_.heads, (width + kGroup - 1) / kGroup};
    rows.code = {.scales = zeros(scales, DType::bf16), .bits = bits};
  }
  return rows;
}

Tensor KVStore::zeros(const Shape& shape, DType dtype) const {
  if (place_ != Place::file) {
    return Tensor::zeros(shape, dtype, place_ == Place::host ? kCpu : device_);
  }
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  return Tensor::over(map_temporary_file(bytes), shape, dtype);
}

void KVStore::write(const Tensor& k, const Tensor& v, const Tensor& slots) {
  store(k, slots, k_);
  if (v_.values.defined()) {
    store(v, slots, v_);
  }
}

/// Rows that are apart from the model are made beside it and then brought to their place.
void KVStore::store(const Tensor& x, const Tensor& slots, Rows& to) {
  kernels::Backend& backend = kernels::backend(x.device());
  if (to.values.device() == x.device()) {
    backend.store_kv(x, slots, to.values, to.code);
    return;
  }
  const auto beside = [&](const Tensor& like) {
    return Tensor::empty({x.dim(0), like.dim(1), like.dim(2)}, like.dtype(), x.device());
  };
  std::vector<int32_t> in_order(static_cast<size_t>(x.dim(0)));
  std::iota(in_order.begin(), in_order.end(), 0);
  const bool coded = to.code.scales.defined();
  Rows made{.values = beside(to.values),
            .code = {.scales = coded ? beside(to.code.scales) : Tensor(), .bits = to.code.bits}};
  backend.store_kv(x, Tensor::from(in_order, {x.dim(0)}, x.device()), made.values, made.code);
  kernels::Backend& host = kernels::backend(kCpu);
  host.store_kv(made.values.to(kCpu), slots.to(kCpu), to.values, {});
  if (coded) {
    host.store_kv(made.code.scales.to(kCpu), slots.to(kCpu), to.code.scales, {});
  }
}

void KVStore::copy(int64_t from, int64_t to, int64_t count) {
  for (const Part& part : parts()) {
    part.tensor.rows(to, to + count).copy_from(part.tensor.rows(from, from + count));
  }
}

void KVStore::show(kernels::KVView& view, std::span<const SlotRange> seen) const {
  const Rows k = brought(k_, seen), v = brought(v_, seen);
  view.k = k.values;
  view.k_code = k.code;
  view.v = v.values;
  view.v_code = v.code;
  view.value_size = shape_.value_size;
}

/// The rows with the model: the same ones where they are there already, else a copy of those seen,
/// whose other slots hold anything at all.
KVStore::Rows KVStore::brought(const Rows& rows, std::span<const SlotRange> seen) const {
  const auto bring = [&](const Tensor& slots) {
    if (!slots.defined() || slots.device() == device_) {
      return slots;
    }
    Tensor there = Tensor::empty(slots.shape(), slots.dtype(), device_);
    for (const auto& [first, count] : seen) {
      there.rows(first, first + count).copy_from(slots.rows(first, first + count));
    }
    return there;
  };
  return {.values = bring(rows.values),
          .code = {.scales = bring(rows.code.scales), .bits = rows.code.bits}};
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
