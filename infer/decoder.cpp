// Passes with a cache, in pieces that it can take; and passes over everything.
#include "infer/decoder.h"

#include <algorithm>

#include "configs/size.h"
#include "infer/decode_step.h"
#include "nn/positions.h"

namespace headroom::infer {

namespace {

/// Keys that the query at `position` sees.
int64_t keys_seen(kernels::AttentionMask mask, int64_t position) {
  const int64_t all = position + 1;
  return mask.window == 0 ? all : std::min(all, mask.window + mask.sinks);
}

class CachedDecoder final : public Decoder {
 public:
  CachedDecoder(const nn::GPT& model, kernels::AttentionMask mask, const DecoderRoom& room,
                const Storage& storage, DType dtype)
      : Decoder(model),
        dtype_(dtype),
        in_memory_(storage.place == Place::memory),
        chunk_(room.chunk),
        windowed_(prefill_chunk(model.config(), mask) == kBlock),
        cache_(model.config(), BlockTable(mask, room.tokens, room.chunk), room.batch, storage,
               model.device(), room.prefixes),
        step_(model, cache_, dtype) {}

  int64_t length(int64_t sequence) const override { return cache_.position(sequence); }
  void reorder(std::span<const int64_t> parents) override { cache_.reorder(parents); }
  void truncate(int64_t sequence, int64_t length) override { cache_.truncate(sequence, length); }
  BlockCache* cache() override { return &cache_; }

 private:
  Tensor step(const Sequences& tokens) override {
    if (!in_memory_ || !DecodeStep::is_step(tokens)) {
      return {};
    }
    count(tokens, 1);
    Tensor logits = step_.run(tokens);
    work_.cache_bytes_read = cache_.bytes_read();
    count_logits(cache_.batch());
    return logits;
  }

  void run(const Sequences& tokens, const OnHidden& on_hidden) override {
    std::vector<int64_t> done(tokens.size(), 0);
    for (;;) {
      Sequences piece(tokens.size());
      int64_t most = 0;
      for (size_t b = 0; b < tokens.size(); ++b) {
        const auto begin = tokens[b].begin() + done[b];
        piece[b].assign(begin, begin + std::min(at_once(static_cast<int64_t>(b)),
                                                static_cast<int64_t>(tokens[b].end() - begin)));
        most = std::max(most, static_cast<int64_t>(piece[b].size()));
      }
      if (most == 0) {
        break;
      }
      count(piece, most);
      infer::feed(model_, cache_, piece, most, dtype_,
                  [&](int64_t sequence, int64_t first, const Tensor& rows) {
                    on_hidden(sequence, done[static_cast<size_t>(sequence)] + first, rows);
                  });
      for (size_t b = 0; b < tokens.size(); ++b) {
        done[b] += static_cast<int64_t>(piece[b].size());
      }
    }
    work_.cache_bytes_read = cache_.bytes_read();
  }

  /// Under a window the rest of a block: more would need a larger ring than decoding does.
  int64_t at_once(int64_t sequence) const {
    return windowed_ ? std::max(chunk_, kBlock - cache_.position(sequence) % kBlock)
                     : kPrefillChunk;
  }

  void count(const Sequences& piece, int64_t most) {
    count_pass(static_cast<int64_t>(piece.size()) * most);
    for (size_t b = 0; b < piece.size(); ++b) {
      for (int64_t layer = 0; layer < model_.config().n_layer; ++layer) {
        count_attention(cache_.position(static_cast<int64_t>(b)),
                        static_cast<int64_t>(piece[b].size()), cache_.mask(layer));
      }
    }
  }

  DType dtype_;
  bool in_memory_;
  int64_t chunk_;
  bool windowed_;
  BlockCache cache_;
  DecodeStep step_;
};

class RecomputingDecoder final : public Decoder {
 public:
  RecomputingDecoder(const nn::GPT& model, kernels::AttentionMask mask, int64_t batch, DType dtype)
      : Decoder(model), mask_(mask), dtype_(dtype), sequences_(static_cast<size_t>(batch)) {}

  int64_t length(int64_t sequence) const override {
    return std::ssize(sequences_[static_cast<size_t>(sequence)]);
  }
  void reorder(std::span<const int64_t> parents) override {
    Sequences next;
    for (const int64_t parent : parents) {
      next.push_back(parent < 0 ? std::vector<int32_t>() : sequences_[static_cast<size_t>(parent)]);
    }
    sequences_ = std::move(next);
  }
  void truncate(int64_t sequence, int64_t length) override {
    sequences_[static_cast<size_t>(sequence)].resize(static_cast<size_t>(length));
  }

 private:
  void run(const Sequences& tokens, const OnHidden& on_hidden) override {
    Sequences going_on;  // what is given nothing is left out
    std::vector<int64_t> owner, old_length;
    int64_t longest = 0;
    for (size_t b = 0; b < tokens.size(); ++b) {
      if (tokens[b].empty()) {
        continue;
      }
      owner.push_back(static_cast<int64_t>(b));
      old_length.push_back(std::ssize(sequences_[b]));
      sequences_[b].insert(sequences_[b].end(), tokens[b].begin(), tokens[b].end());
      going_on.push_back(sequences_[b]);
      longest = std::max(longest, std::ssize(sequences_[b]));
    }
    count_pass(std::ssize(going_on) * longest);
    for (const auto& sequence : going_on) {
      for (int64_t layer = 0; layer < model_.config().n_layer; ++layer) {
        count_attention(0, std::ssize(sequence),
                        nn::layer_mask(model_.config(), layer, mask_).mask);
      }
    }
    feed_whole(model_, going_on, mask_, dtype_, [&](int64_t n, int64_t, const Tensor& rows) {
      const int64_t old = old_length[static_cast<size_t>(n)];
      on_hidden(owner[static_cast<size_t>(n)], 0, rows.rows(old, rows.dim(0)));
    });
  }

  kernels::AttentionMask mask_;
  DType dtype_;
  Sequences sequences_;
};

}  // namespace

Tensor Decoder::feed(const Sequences& tokens, int64_t rows) {
  if (Tensor logits = step(tokens); logits.defined()) {
    return logits;
  }
  LastRows last(tokens, rows);
  run(tokens, last.keeper());
  Tensor logits = last.logits(model_);
  count_logits(logits.dim(0));
  return logits;
}

void Decoder::count_logits(int64_t rows) {
  work_.logit_rows += rows;
  work_.flop += 2 * rows * model_.vocab_size() * model_.config().n_embd;
}

Decoder::Decoder(const nn::GPT& model)
    : model_(model),
      flop_per_row_(configs::decode_flop(model.config(), 0, 0)),
      flop_per_key_((configs::decode_flop(model.config(), 0, 1) - flop_per_row_) /
                    model.config().n_layer) {}

void Decoder::count_pass(int64_t rows) {
  ++work_.passes;
  work_.rows += rows;
  work_.flop += rows * flop_per_row_;
}

void Decoder::count_attention(int64_t first, int64_t count, kernels::AttentionMask mask) {
  for (int64_t position = first; position < first + count; ++position) {
    work_.flop += flop_per_key_ * keys_seen(mask, position);
  }
}

std::unique_ptr<Decoder> cached_decoder(const nn::GPT& model, kernels::AttentionMask mask,
                                        const DecoderRoom& room, const Storage& storage,
                                        DType dtype) {
  return std::make_unique<CachedDecoder>(model, mask, room, storage, dtype);
}

std::unique_ptr<Decoder> recomputing_decoder(const nn::GPT& model, kernels::AttentionMask mask,
                                             int64_t batch, DType dtype) {
  return std::make_unique<RecomputingDecoder>(model, mask, batch, dtype);
}

}  // namespace headroom::infer
