// A block's shared memory as the harness keeps it: with every byte, who last wrote and read it, and
// since which barrier.
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
  /// Both return what is wrong with the access, or nothing.
  std::string read(int offset, size_t bytes, void* to, const Moment& now);
  std::string write(int offset, size_t bytes, const void* from, const Moment& now);

 private:
  struct Byte {
    bool written = false;
    Moment writer;
    /// The last reader, the one before it in its warp, and the last of another warp.
    Moment reader, same_warp, other_warp;
  };
  std::string outside(int offset, size_t bytes) const;

  std::vector<std::byte> bytes_;
  std::vector<Byte> notes_;
};

}  // namespace simt
