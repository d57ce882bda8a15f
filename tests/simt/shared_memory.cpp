// Two accesses race when one writes, their threads differ, and no barrier orders them: CUDA C++
// Programming Guide, "Synchronization Functions" (__syncthreads, __syncwarp order memory; shuffles
// and votes do not). An asynchronous copy writes at any time from its beginning until its thread
// has waited for it, and races even with that thread (PTX ISA 8.7, cp.async and
// cp.async.wait_group).
#include "tests/simt/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace simt {

namespace {

constexpr int kWarp = 32;
constexpr size_t kNoted = 2;  // bytes that share a note: no number in shared memory is smaller

}  // namespace

SharedMemory::Access SharedMemory::access(const Moment& now) {
  return {static_cast<uint32_t>(now.thread), now.warp_barriers};
}

bool SharedMemory::same_warp(const Access& a, const Access& b) {
  return a.thread / kWarp == b.thread / kWarp;
}

bool SharedMemory::races(const Access& earlier, const Access& now) {
  if (earlier.thread == kNobody || earlier.thread == now.thread) {
    return false;
  }
  return !same_warp(earlier, now) || earlier.warp_barriers >= now.warp_barriers;
}

std::string SharedMemory::race(const char* does, size_t note, const char* did,
                               const Access& earlier) {
  return fmt::format(
      "data race: {} shared memory at offset {}, which thread {} {} since the barrier", does,
      note * kNoted, static_cast<uint32_t>(earlier.thread), did);
}

void SharedMemory::begin(size_t bytes) {
  bytes_.resize(bytes);
  notes_.resize((bytes + kNoted - 1) / kNoted);
  first_interval_ = last_interval_ + 1;
}

std::string SharedMemory::outside(int offset, size_t bytes) const {
  if (offset >= 0 && static_cast<size_t>(offset) + bytes <= bytes_.size()) {
    return {};
  }
  return fmt::format("{} bytes at offset {} of {} bytes of shared memory", bytes, offset,
                     bytes_.size());
}

SharedMemory::Note& SharedMemory::note_at(size_t number, const Moment& now) {
  Note& note = notes_[number];
  const uint32_t interval = first_interval_ + now.block_barriers;
  if (note.interval != interval) {
    if (note.interval < first_interval_) {
      note.state = State::unwritten;
    }
    note.interval = interval;
    last_interval_ = std::max(last_interval_, interval);
    note.reader = note.same_warp = note.other_warp = Access();
    if (note.state != State::copying) {
      note.writer = Access();
    }
  }
  return note;
}

std::string SharedMemory::read(int offset, size_t bytes, void* to, const Moment& now) {
  if (std::string wrong = outside(offset, bytes); !wrong.empty()) {
    return "out of bounds: reads " + wrong;
  }
  const auto first = static_cast<size_t>(offset);
  const Access own = access(now);
  for (size_t i = first / kNoted; i * kNoted < first + bytes; ++i) {
    Note& note = note_at(i, now);
    if (note.state == State::copying) {
      return race("reads", i, "copies to", note.writer);
    }
    if (note.state == State::unwritten) {
      return fmt::format("uninitialised: reads shared memory at offset {}, which nobody wrote",
                         i * kNoted);
    }
    if (races(note.writer, own)) {
      return race("reads", i, "wrote", note.writer);
    }
    if (note.reader.thread != own.thread) {
      if (note.reader.thread == kNobody || same_warp(note.reader, own)) {
        note.same_warp = note.reader;
      } else {
        note.other_warp = note.reader;
        note.same_warp = Access();
      }
    }
    note.reader = own;
  }
  std::memcpy(to, bytes_.data() + first, bytes);
  return {};
}

std::string SharedMemory::change(int offset, size_t bytes, State to, const Moment& now) {
  if (std::string wrong = outside(offset, bytes); !wrong.empty()) {
    return "out of bounds: writes " + wrong;
  }
  const auto first = static_cast<size_t>(offset);
  const Access own = access(now);
  for (size_t i = first / kNoted; i * kNoted < first + bytes; ++i) {
    Note& note = note_at(i, now);
    if (note.state == State::copying) {
      return race("writes", i, "copies to", note.writer);
    }
    if (races(note.writer, own)) {
      return race("writes", i, "wrote", note.writer);
    }
    for (const Access& reader : {note.reader, note.same_warp, note.other_warp}) {
      if (races(reader, own)) {
        return race("writes", i, "read", reader);
      }
    }
    note.state = to;
    note.writer = own;
  }
  return {};
}

std::string SharedMemory::write(int offset, size_t bytes, const void* from, const Moment& now) {
  std::string wrong = change(offset, bytes, State::written, now);
  if (wrong.empty()) {
    std::memcpy(bytes_.data() + offset, from, bytes);
  }
  return wrong;
}

std::string SharedMemory::begin_copy(int offset, size_t bytes, const Moment& now) {
  return change(offset, bytes, State::copying, now);
}

void SharedMemory::end_copy(int offset, size_t bytes, const void* from, const Moment& now) {
  const size_t first = static_cast<size_t>(offset) / kNoted;
  for (size_t i = first; i < first + bytes / kNoted; ++i) {
    Note& note = note_at(i, now);
    note.state = State::written;
    note.writer = access(now);
  }
  std::memcpy(bytes_.data() + offset, from, bytes);
}

}  // namespace simt
