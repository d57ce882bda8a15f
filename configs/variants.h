// The models of a sweep: what changes with n_kv_head, and what makes the comparison fair.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/config.h"

namespace headroom::configs {

/// `base` with `n_kv_head` KV heads, fair in the sense of base.sweep.fair. The yardstick is always
/// base with n_kv_head = n_head (MHA), and base's n_ff, n_layer and steps are the yardstick's:
///   same_shape   nothing else changes.
///   same_params  what the absent KV heads save in attention goes to n_ff, rounded to the nearest
///                whole unit (as Shazeer did, arXiv 1911.02150).
///   same_cache   what they save goes to layers: n_layer * n_head / n_kv_head, so that the cache
///                per token is the yardstick's. Steps, and with them warm-up and the steps between
///                evaluations, are cut in the ratio of the FLOP of one step, so that the FLOP of
///                the training stay equal (to half a step); at least one step remains.
/// `vocab_size` counts in the FLOP of the head. Throws InputError when n_head is no multiple of
/// n_kv_head.
Config variant(const Config& base, int64_t n_kv_head, int64_t vocab_size);

/// `base` with multi-head attention but for one relief, its n_layer, n_ff and steps being the
/// yardstick's:
///   mla           multi-head latent attention (arXiv 2405.04434), kv_rank and rope_head_dim as in
///                 base.
///   window        every layer sees a quarter of block_size, its own token included.
///   learned_sink  learned sink logits: they cost next to nothing, and show what they do to the
///   loss.
/// Under same_params what it saves (or costs) goes to n_ff. Throws InputError for a base that has
/// the relief, and under same_cache.
Config relief_variant(const Config& base, Relief relief, int64_t vocab_size);

/// variant() for each of base.sweep.n_kv_head, in that order. Throws InputError, naming the list,
/// before any work if one of them does not divide n_head.
std::vector<Config> variants(const Config& base, int64_t vocab_size);

}  // namespace headroom::configs
