// Memory that is a file: what is not in use can leave RAM, and comes back when it is read.
#pragma once

#include <cstddef>
#include <memory>

namespace headroom::infer {

/// `bytes` bytes of zeros in a nameless file of the folder that TMPDIR names (default /tmp), which
/// is gone with the last handle or with the process. The space is taken at once: a disk that is
/// full says so here, not in the middle of a step. Throws Error naming the folder.
std::shared_ptr<void> map_temporary_file(size_t bytes);

/// Lets go of the RAM under a range, whose contents stay in the file; or asks for it to be read
/// ahead. Both only touch the whole pages inside (or around) the range.
void let_go(void* from, size_t bytes);
void bring_back(void* from, size_t bytes);

}  // namespace headroom::infer
