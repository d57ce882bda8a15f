// The same prompts three ways, taking turns so that a machine's moods meet all of them.
#include "experiments/drafting.h"

#include "experiments/ceilings.h"
#include "infer/speculate.h"

namespace headroom::experiments {
namespace {

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

bool go_on(int64_t /*row*/, int32_t /*token*/) { return true; }

double seconds_of(const infer::Generated& made) {
  return made.stats.prefill_seconds + made.stats.decode_seconds;
}

int64_t count_unlike(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  int64_t unlike = 0;
  for (size_t i = 0; i < a.size(); ++i) unlike += i < b.size() && a[i] == b[i] ? 0 : 1;
  return unlike;
}

}  // namespace

double Drafting::acceptance() const {
  return ratio(static_cast<double>(accepted), static_cast<double>(guessed));
}

double Drafting::tokens_per_pass() const {
  return ratio(static_cast<double>(accepted + passes), static_cast<double>(passes));
}

double Drafting::speed_up() const { return ratio(median(plain_seconds), median(drafted_seconds)); }

double Drafting::cost() const { return ratio(median(alone_seconds), median(plain_seconds)); }

double Drafting::expected_speed_up(int64_t guesses) const {
  return tokens_per_pass() / (static_cast<double>(guesses) * cost() + 1);
}

Drafting measure_drafting(const nn::GPT& model, const nn::GPT& draft,
                          const infer::Sequences& prompts, const infer::GenerateOptions& options,
                          const std::function<void()>& prompt_done) {
  infer::GenerateOptions plain_options = options;
  plain_options.draft_tokens = 0;
  Drafting result;
  for (const auto& prompt : prompts) {
    const infer::Generated plain = infer::generate(model, {prompt}, plain_options, go_on);
    const infer::Generated alone = infer::generate(draft, {prompt}, plain_options, go_on);
    const infer::Generated drafted = infer::speculate(model, draft, {prompt}, options, go_on);
    result.plain_seconds.push_back(seconds_of(plain));
    result.alone_seconds.push_back(seconds_of(alone));
    result.drafted_seconds.push_back(seconds_of(drafted));
    result.guessed += drafted.stats.drafted;
    result.accepted += drafted.stats.accepted;
    result.passes += drafted.stats.judged;
    result.tokens += std::ssize(plain.tokens[0]);
    result.unlike += count_unlike(plain.tokens[0], drafted.tokens[0]);
    prompt_done();
  }
  return result;
}

}  // namespace headroom::experiments
