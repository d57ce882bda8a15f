// Shapes, handles and views of the same memory, copies, refusals, and the allocator's books.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tensor/allocator.h"
#include "tensor/tensor.h"

namespace headroom {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

Tensor counting(const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<float>(i));
  return Tensor::from(values, shape);
}

template <class F>
std::string message_of(F&& fails) {
  try {
    fails();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Shape, KnowsItsAxesFromBothEnds) {
  const Shape shape{16, 256, 8};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 32768);
  EXPECT_EQ(shape.dim(0), 16);
  EXPECT_EQ(shape.dim(2), 8);
  EXPECT_EQ(shape.dim(-1), 8);
  EXPECT_EQ(shape.dim(-3), 16);
  EXPECT_EQ(to_string(shape), "(16, 256, 8)");
  EXPECT_THROW(shape.dim(3), Error);
  EXPECT_THROW(shape.dim(-4), Error);
}

TEST(Shape, AScalarHasNoAxesAndOneElement) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(to_string(Shape()), "()");
  EXPECT_THROW(Shape().dim(0), Error);
  EXPECT_THROW(Shape().with_last(2), Error);
}

TEST(Shape, ComparesAxesAndNotElements) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{6}), (Shape{6, 1}));
  EXPECT_NE((Shape{}), (Shape{1}));
  EXPECT_EQ((Shape{2, 3}.with_last(7)), (Shape{2, 7}));
}

TEST(Shape, RefusesWhatNoMemoryCouldHold) {
  EXPECT_THROW((Shape{2, -1}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), Error);
  EXPECT_EQ((Shape{1, 1, 1, 1, 1, 2}).numel(), 2);
  EXPECT_THROW((Shape{kHuge, 2}), Error);
  EXPECT_THROW((Shape{int64_t{1} << 32, int64_t{1} << 32}), Error);
  EXPECT_EQ((Shape{4, 0, 3}).numel(), 0);
}

TEST(Tensor, AHandleWithoutMemorySaysSo) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_FALSE(none.same_memory(none));
  EXPECT_THROW(none.data<float>(), Error);
  EXPECT_THROW(none.device(), Error);
  EXPECT_THROW(none.clone(), Error);
  EXPECT_THROW(none.item(), Error);
}

TEST(Tensor, CopyingAHandleSharesAndCloneDoesNot) {
  Tensor a = counting({2, 3});
  EXPECT_FALSE(a.shared());
  Tensor handle = a, copy = a.clone();
  EXPECT_TRUE(a.shared());
  a.data<float>()[4] = -1;
  EXPECT_EQ(handle.data<float>()[4], -1);
  EXPECT_EQ(copy.data<float>()[4], 4);
  EXPECT_TRUE(handle.same_memory(a));
  EXPECT_FALSE(copy.same_memory(a));
  EXPECT_EQ(copy.shape(), a.shape());
}

TEST(Tensor, ReshapeIsTheSameMemoryInAnotherShape) {
  const Tensor a = counting({2, 6});
  Tensor b = a.reshape({3, 4});
  EXPECT_EQ(b.shape(), (Shape{3, 4}));
  EXPECT_TRUE(b.same_memory(a));
  b.data<float>()[11] = 50;
  EXPECT_EQ(a.data<float>()[11], 50);
  EXPECT_THROW(a.reshape({5, 2}), Error);
  EXPECT_EQ(counting({1}).reshape({}).rank(), 0);
}

TEST(Tensor, RowsAreARangeOfTheFirstAxis) {
  Tensor a = counting({5, 2, 2});
  Tensor middle = a.rows(1, 4);
  EXPECT_EQ(middle.shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(middle.to_vector<float>(),
            (std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  // Rows of rows, and another shape of those.
  const Tensor inner = middle.rows(2, 3).reshape({4});
  EXPECT_EQ(inner.to_vector<float>(), (std::vector<float>{12, 13, 14, 15}));
  middle.zero();
  EXPECT_EQ(a.data<float>()[3], 3);
  EXPECT_EQ(a.data<float>()[4], 0);
  EXPECT_EQ(a.data<float>()[15], 0);
  EXPECT_EQ(a.data<float>()[16], 16);
  EXPECT_EQ(middle.clone().to_vector<float>(), std::vector<float>(12, 0.0F));
}

TEST(Tensor, RowsRefuseRangesOutside) {
  const Tensor a = counting({5, 2});
  EXPECT_EQ(a.rows(5, 5).numel(), 0);
  EXPECT_EQ(a.rows(0, 5).numel(), 10);
  EXPECT_THROW(a.rows(-1, 2), Error);
  EXPECT_THROW(a.rows(3, 2), Error);
  EXPECT_THROW(a.rows(0, 6), Error);
  EXPECT_THROW(a.rows(1, 3).rows(0, 3), Error);
  EXPECT_THROW(counting({}).rows(0, 1), Error);
  EXPECT_EQ(Tensor::empty({0, 4}, DType::f32).rows(0, 0).shape(), (Shape{0, 4}));
}

TEST(Tensor, CopyFromWritesOnlyTheView) {
  Tensor a = counting({4, 2});
  a.rows(1, 2).copy_from(Tensor::from(std::vector<float>{70, 80}, {1, 2}));
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{0, 1, 70, 80, 4, 5, 6, 7}));
  EXPECT_THROW(a.copy_from(counting({2, 4})), Error);
  EXPECT_THROW(a.copy_from(Tensor::zeros({4, 2}, DType::f64)), Error);
  EXPECT_THROW(a.rows(0, 2).copy_from(counting({3, 2})), Error);
}

TEST(Tensor, ToTheDeviceItIsOnIsItself) {
  const Tensor a = counting({3});
  EXPECT_TRUE(a.to(kCpu).same_memory(a));
}

TEST(Tensor, ItemReadsEveryType) {
  EXPECT_EQ(Tensor::from(std::vector<double>{0.1}, {}).item(), 0.1);
  EXPECT_EQ(Tensor::from(std::vector<float>{0.25F}, {1}).item(), 0.25);
  EXPECT_EQ(Tensor::from(std::vector<bf16>{bf16(-3.5F)}, {1, 1}).item(), -3.5);
  EXPECT_EQ(Tensor::from(std::vector<f16>{f16(-3.5F)}, {}).item(), -3.5);
  EXPECT_EQ(Tensor::from(std::vector<int8_t>{-128}, {}).item(), -128);
  EXPECT_EQ(Tensor::from(std::vector<int32_t>{-2147483647}, {}).item(), -2147483647);
  EXPECT_EQ(counting({3}).rows(2, 3).item(), 2);
  EXPECT_THROW(counting({2}).item(), Error);
  EXPECT_THROW(Tensor::empty({0}, DType::f32).item(), Error);
}

TEST(Tensor, DataIsHandedOutOnlyAsTheStoredType) {
  Tensor x = Tensor::zeros({2, 3}, DType::bf16);
  EXPECT_NO_THROW(x.data<bf16>());
  const std::string message = message_of([&] { x.data<float>(); });
  EXPECT_NE(message.find("f32"), std::string::npos) << message;
  EXPECT_NE(message.find("bf16"), std::string::npos) << message;
  EXPECT_NE(message.find("(2, 3)"), std::string::npos) << message;
  EXPECT_THROW(x.data<f16>(), Error);  // the same width is not the same type
  EXPECT_THROW(Tensor::zeros({1}, DType::f32).data<int32_t>(), Error);
}

TEST(Tensor, FromNeedsAValueForEachElement) {
  EXPECT_THROW(Tensor::from(std::vector<float>{1, 2, 3}, {2, 2}), Error);
  EXPECT_THROW(Tensor::from(std::vector<float>{}, {}), Error);
}

TEST(Tensor, ADeviceWithoutABackendIsRefusedByName) {
  const std::string message = message_of([] {
    Tensor::empty({1}, DType::f32, Device{Device::Type::cuda, 1});
  });
  EXPECT_NE(message.find("cuda:1"), std::string::npos) << message;
}

TEST(Allocator, CountsTheBytesOfTensorsAndNotOfViews) {
  const Allocator& memory = allocator(kCpu);
  const size_t before = memory.bytes_in_use();
  {
    Tensor a = Tensor::empty({10, 7}, DType::f32);
    EXPECT_EQ(memory.bytes_in_use() - before, 280U);
    const Tensor view = a.rows(2, 3), handle = a, shape = a.reshape({70});
    EXPECT_EQ(memory.bytes_in_use() - before, 280U);
    const Tensor copy = view.clone();
    EXPECT_EQ(memory.bytes_in_use() - before, 280U + 28U);
    a = Tensor();
    EXPECT_EQ(memory.bytes_in_use() - before, 280U + 28U) << "a view keeps its memory alive";
    EXPECT_GE(memory.bytes_reserved(), memory.bytes_in_use());
  }
  EXPECT_EQ(memory.bytes_in_use(), before);
}

TEST(Allocator, RemembersThePeak) {
  const Allocator& memory = allocator(kCpu);
  const size_t before = memory.bytes_in_use();
  const int64_t more = static_cast<int64_t>(memory.peak_bytes()) + 1000;
  { const Tensor big = Tensor::empty({more}, DType::i8); }
  EXPECT_EQ(memory.peak_bytes(), before + static_cast<size_t>(more));
}

TEST(Allocator, HandsOutAlignedMemory) {
  std::vector<Tensor> kept;
  for (const int64_t size : {1, 3, 63, 64, 65, 1000, 4097}) {
    kept.push_back(Tensor::empty({size}, DType::i8));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(kept.back().raw()) % 64, 0U) << size;
  }
}

/// Blocks freed in one order and asked for in another: each must hold what it is handed out for.
TEST(Allocator, ABlockIsUsedAgainOnlyForWhatItHolds) {
  std::vector<int64_t> sizes = {1, 63, 448, 449, 511};
  for (int64_t power = 512; power <= (1 << 20); power *= 2) {
    for (int64_t eighth = 8; eighth < 16; ++eighth) {
      const int64_t size = power * eighth / 8;
      sizes.insert(sizes.end(), {size - 1, size, size + 1});
    }
  }
  std::mt19937 random(1);
  size_t reserved = 0;
  for (int round = 0; round < 3; ++round) {
    std::map<uintptr_t, uintptr_t> blocks;  // begin to end
    std::vector<Tensor> kept;
    for (const int64_t size : sizes) {
      kept.push_back(Tensor::empty({size}, DType::i8));
      const auto begin = reinterpret_cast<uintptr_t>(kept.back().raw());
      blocks[begin] = begin + static_cast<uintptr_t>(size);
    }
    ASSERT_EQ(blocks.size(), sizes.size());
    for (auto block = blocks.begin(); std::next(block) != blocks.end(); ++block) {
      ASSERT_LE(block->second, std::next(block)->first) << "in round " << round;
    }
    if (round > 0) {
      EXPECT_EQ(allocator(kCpu).bytes_reserved(), reserved);
    }
    reserved = allocator(kCpu).bytes_reserved();
    std::ranges::shuffle(sizes, random);
  }
}

TEST(Allocator, MemoryAskedForAgainIsZeroWhereZerosAreAskedFor) {
  { Tensor dirty = counting({1024}); }
  EXPECT_EQ(Tensor::zeros({1024}, DType::f32).to_vector<float>(), std::vector<float>(1024, 0.0F));
}

TEST(Allocator, ARequestBeyondTheMachineIsAnErrorAndLeavesTheBooksAlone) {
  const size_t before = allocator(kCpu).bytes_in_use();
#if !defined(__SANITIZE_ADDRESS__)  // whose allocator ends the program
  EXPECT_THROW(Tensor::empty({int64_t{1} << 55}, DType::f64), Error);
#endif
  // 2^62 elements of 8 bytes are 2^65 bytes: the product must not wrap to 0.
  EXPECT_THROW(Tensor::empty({kHuge}, DType::f64), Error);
  EXPECT_THROW(Tensor::empty({kHuge}, DType::f32), Error);
  EXPECT_EQ(allocator(kCpu).bytes_in_use(), before);
}

}  // namespace
}  // namespace headroom
