// Byte-level BPE against Hugging Face's library (tests/golden/make_bpe.py), and its own promises:
// DAT-06, DAT-07, DAT-08, DAT-09.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "tensor/file.h"
#include "tests/text_support.h"
#include "text/bpe_trainer.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

const std::string kGolden = HEADROOM_SOURCE_DIR "/tests/golden/";

std::unique_ptr<BpeTokenizer> trained(std::string_view text, int64_t vocab_size) {
  std::vector<std::string> notes;
  return train_bpe(text, vocab_size, notes);
}

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> result;
  Gpt2Splitter().split(text, [&](std::string_view piece) { result.emplace_back(piece); });
  return result;
}

std::string random_letters(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text(count, ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 26);
  return text;
}

bool holds_token(const Tokenizer& tokenizer, std::string_view bytes) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token_bytes(id) == bytes) return true;
  }
  return false;
}

TEST(Bpe, LearnsTheTokensAndMergesOfHuggingFacesTrainer) {
  const auto tokenizer = trained(read_file(kGolden + "bpe_training.txt"), 700);
  const auto ours = nlohmann::json::parse(tokenizer->to_json());
  const auto theirs = nlohmann::json::parse(read_file(kGolden + "bpe_tokenizer.json"));
  EXPECT_EQ(ours["model"]["vocab"], theirs["model"]["vocab"]);
  const auto& merges = theirs["model"]["merges"];
  ASSERT_EQ(ours["model"]["merges"].size(), merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    EXPECT_EQ(ours["model"]["merges"][i],
              merges[i][0].get<std::string>() + " " + merges[i][1].get<std::string>());
  }
  EXPECT_EQ(ours["pre_tokenizer"], theirs["pre_tokenizer"]);
}

TEST(Bpe, EncodesAsHuggingFacesLibrary) {
  const auto theirs = load_tokenizer(kGolden + "bpe_tokenizer.json");
  const auto ours = trained(read_file(kGolden + "bpe_training.txt"), 700);
  const auto cases = nlohmann::json::parse(read_file(kGolden + "bpe_ids.json"));
  ASSERT_EQ(cases.size(), 18u);
  for (const auto& example : cases) {
    const auto text = example["text"].get<std::string>();
    const auto ids = example["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(ours->encode(text), ids) << text;
    EXPECT_EQ(theirs->encode(text), ids) << text;
    EXPECT_EQ(ours->decode(ids), text);
  }
}

TEST(Bpe, SplitsByGpt2sPattern) {
  EXPECT_EQ(pieces("I'm here,  it's 10\n\n\nend "),
            (std::vector<std::string>{"I", "'m", " here", ",", " ", " it", "'s", " 10", "\n\n",
                                      "\n", "end", " "}));
}

TEST(Bpe, GivesEqualPairsToTheLowerIds) {
  // ab, cd and " a" occur twice each: the lower left id first (letters stand before the space).
  const auto by_left = trained("cd ab cd ab", 259);
  EXPECT_EQ(by_left->token_bytes(256), "ab");
  EXPECT_EQ(by_left->token_bytes(257), "cd");
  EXPECT_EQ(by_left->token_bytes(258), " ab");
  const auto by_right = trained("xb.xa.xb.xa", 258);
  EXPECT_EQ(by_right->token_bytes(256), "xa");
  EXPECT_EQ(by_right->token_bytes(257), "xb");
}

TEST(Bpe, StopsWhenNoPairOccursTwice) {
  std::vector<std::string> notes;
  const auto tokenizer = train_bpe("abab xyz", 1000, notes);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->token_bytes(256), "ab");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(holds(notes[0], {"257 tokens instead of 1000"}));
  EXPECT_EQ(trained("", 300)->vocab_size(), 256);
}

TEST(Bpe, LearnsATokenForTwoNewlinesFromBlankLines) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "a line\n\n\n\n";
  EXPECT_TRUE(holds_token(*trained(text, 300), "\n\n"));
}

TEST(Bpe, RoundTripsBytesThatAreNotUtf8) {
  const auto tokenizer = trained(read_file(kGolden + "bpe_training.txt"), 700);
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte);
  for (const std::string& text :
       {std::string("one \xFF in the middle"), std::string("caf\xE9 cr\xE8me"),
        std::string("\xFF\xFEh\0i\0 \0t\0h\0e\0r\0e\0", 18), std::string("ends in \xE4\xB8"),
        std::string("\xE4\xB8"), std::string(1000, '\x80'), every_byte}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    const auto on_it = trained(text + text, 280);
    EXPECT_EQ(on_it->decode(on_it->encode(text)), text);
  }
}

TEST(Bpe, EncodesTheTextBesideInvalidBytesAsByItself) {
  const auto tokenizer = trained(read_file(kGolden + "bpe_training.txt"), 700);
  std::vector<int32_t> expected = tokenizer->encode("In the beginning");
  for (const int32_t id : tokenizer->encode("\xFF")) expected.push_back(id);
  for (const int32_t id : tokenizer->encode(" God created")) expected.push_back(id);
  EXPECT_EQ(tokenizer->encode("In the beginning\xFF God created"), expected);
}

// A chain of rules aa, aaaa, ... and pairs of letters: long pieces have both huge and small tokens.
std::unique_ptr<BpeTokenizer> tokenizer_for_long_pieces() {
  return trained(std::string(1 << 17, 'a') + " " + random_letters(50000, 1), 600);
}

TEST(Bpe, MergesLongPiecesWithWorkInProportion) {
  const auto tokenizer = tokenizer_for_long_pieces();
  ASSERT_TRUE(holds_token(*tokenizer, std::string(1024, 'a')));
  const auto same = [](size_t count) { return std::string(count, 'a'); };
  const auto letters = [](size_t count) { return random_letters(count, 2); };
  const auto spaces = [](size_t count) { return std::string(count, ' '); };
  for (const std::function<std::string(size_t)>& make :
       {std::function<std::string(size_t)>(same), std::function<std::string(size_t)>(letters),
        std::function<std::string(size_t)>(spaces)}) {
    std::vector<size_t> work;
    for (const size_t count : {10000, 100000, 1000000}) {
      std::vector<int32_t> ids;
      work.push_back(tokenizer->encode_piece(make(count), ids));
      EXPECT_LE(work.back(), 8 * count);
    }
    EXPECT_LE(work[1], 15 * work[0]);
    EXPECT_LE(work[2], 15 * work[1]);
  }
}

TEST(Bpe, GivesALongPieceTheIdsItHasWithoutWindows) {
  const auto tokenizer = tokenizer_for_long_pieces();
  const MergeTable merges(tokenizer->rules());
  const int32_t id_of_a = tokenizer->encode("a")[0];
  std::mt19937 random(3);
  std::string runs;  // runs of a of every length, so that joins fall everywhere
  while (runs.size() < 1500000) {
    runs += std::string(random() % 3000, 'a') + static_cast<char>('b' + random() % 3);
  }
  for (const std::string& piece : {std::string(1500000, 'a'), random_letters(1500000, 4), runs}) {
    std::vector<int32_t> whole, windows;
    for (const char letter : piece) whole.push_back(id_of_a + (letter - 'a'));
    merges.apply(whole);
    tokenizer->encode_piece(piece, windows);
    EXPECT_EQ(windows, whole);
  }
}

void* encode_on_a_small_stack(void* argument) {
  const auto& tokenizer = *static_cast<const Tokenizer*>(argument);
  for (const std::string& text : {std::string(1000000, 'a'), std::string(1000000, ' '),
                                  random_letters(1000000, 5), std::string(1000000, '\xFF')}) {
    if (tokenizer.decode(tokenizer.encode(text)) != text) return argument;
  }
  return nullptr;
}

TEST(Bpe, NeedsLittleStackForAMillionLettersWithoutASpace) {
  const auto tokenizer = tokenizer_for_long_pieces();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, encode_on_a_small_stack, tokenizer.get()), 0);
  void* failed = nullptr;
  pthread_join(thread, &failed);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(failed, nullptr);
}

TEST(BpeTraining, IsBoundedInWhatItLooksAtAndSaysSo) {
  // The first 1000 bytes teach "ab"; what lies beyond the bound teaches nothing.
  std::string text;
  for (int i = 0; i < 500; ++i) text += "ab";
  for (int i = 0; i < 5000; ++i) text += "xy";
  std::vector<std::string> notes;
  const auto tokenizer = train_bpe(text, 257, notes, 1000);
  EXPECT_EQ(tokenizer->token_bytes(256), "ab");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(holds(notes[0], {"learned from the first"}));
  notes.clear();
  EXPECT_EQ(train_bpe(text, 257, notes)->token_bytes(256), "xy");
  EXPECT_EQ(notes.size(), 0u);
}

TEST(BpeTraining, CutsThePieceAtTheBoundBetweenCharacters) {
  // Five bytes hold one whole character; with the two bytes of the next, a pair would occur twice.
  std::vector<std::string> notes;
  EXPECT_EQ(train_bpe("中中中中", 1000, notes, 5)->vocab_size(), 256);
  EXPECT_GT(train_bpe("中中中中", 1000, notes, 6)->vocab_size(), 256);
}

TEST(BpeTraining, CountsAWordOnceHoweverOftenItOccurs) {
  std::string often;
  for (int i = 0; i < 1000; ++i) often += " word";
  std::vector<std::string> notes;
  train_bpe(often, 260, notes, 10);  // one distinct piece of 5 bytes
  EXPECT_EQ(notes.size(), 0u);
}

}  // namespace
}  // namespace headroom::text
