// "Did you mean": the candidate a mistyped word most likely stands for.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headroom::configs {

/// Edits that turn a into b: insert, delete, replace, or swap two neighbours (optimal string
/// alignment).
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, as it is spelled in `candidates`, or "" when none is near.
/// Case, leading dashes and the choice between - and _ don't count; a third of the letters may be
/// wrong; a word that begins or ends another at a word boundary is near it ("warmup" and
/// "warmup_steps", "max_steps" and "steps"). Ties go to the earlier candidate.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace headroom::configs
