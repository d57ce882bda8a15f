// A block's shared memory as the harness keeps it: with every two bytes, who last wrote and read
// them since the last barrier.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simt {

/// A thread at a moment: two accesses are ordered when a barrier of the block lies between them, or
/// one of the warp for lanes of one warp.
struct Moment {
  int thread = -1;
  unsigned block_barriers = 0, warp_barriers = 0;
};

class SharedMemory {
 public:
  /// Memory of a new block, which nobody has written.
  void begin(size_t bytes);
  /// All return what is wrong with the access, or nothing.
  std::string read(int offset, size_t bytes, void* to, const Moment& now);
  std::string write(int offset, size_t bytes, const void* from, const Moment& now);
  /// An asynchronous copy writes at any time between the two: until its end the bytes are nobody's
  /// to read or write.
  std::string begin_copy(int offset, size_t bytes, const Moment& now);
  void end_copy(int offset, size_t bytes, const void* from, const Moment& now);

 private:
  static constexpr uint32_t kNobody = 2047;
  struct Access {
    uint32_t thread : 11 = kNobody;
    uint32_t warp_barriers : 21 = 0;
  };
  enum class State : uint8_t { unwritten, copying, written };
  struct Note {
    uint32_t interval = 0;  // between barriers, in which what follows was noted
    State state = State::unwritten;
    Access writer;
    /// The last reader, the one before it in its warp, and the last of another warp.
    Access reader, same_warp, other_warp;
  };
  static Access access(const Moment& now);
  static bool same_warp(const Access& a, const Access& b);
  /// Whether nothing orders an earlier access of the same interval before one now.
  static bool races(const Access& earlier, const Access& now);
  static std::string race(const char* does, size_t note, const char* did, const Access& earlier);

  std::string outside(int offset, size_t bytes) const;
  /// What is noted of the interval now; an access before a barrier means nothing after it.
  Note& note_at(size_t number, const Moment& now);
  /// What is wrong with changing the bytes now; if nothing, they are in that state from then on.
  std::string change(int offset, size_t bytes, State to, const Moment& now);

  std::vector<std::byte> bytes_;
  std::vector<Note> notes_;
  // Intervals are counted through all blocks, so that a new block has nothing to clear.
  uint32_t first_interval_ = 1, last_interval_ = 0;
};

}  // namespace simt
