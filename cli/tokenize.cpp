// `headroom tokenize`: the ids and pieces that a config's or a run's tokenizer makes of a text.
#include <CLI/App.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/table.h"
#include "configs/value.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "text/corpus.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "train/run_folder.h"

namespace headroom::cli {
namespace {

struct TokenizeOptions {
  std::string argument;
  std::string text;
  std::string file;
};

/// The run's tokenizer, or the one a run with this config would get.
std::unique_ptr<text::Tokenizer> get_tokenizer(const ConfigArgument& argument,
                                               const Common& common) {
  if (!argument.run.empty()) {
    return text::load_tokenizer(argument.run / train::kTokenizerFile);
  }
  const configs::DataConfig& data = argument.config.data;
  check_input(!data.corpus.empty(),
              "data.corpus must name the text file that the tokenizer learns");
  const text::Corpus corpus = text::load_corpus(data.corpus, data.val_fraction);
  std::vector<std::string> notes = corpus.notes;
  auto tokenizer = text::make_tokenizer(configs::name_of(data.tokenizer), data.vocab_size,
                                        corpus.split(text::Split::train), notes);
  for (const std::string& each : notes) {
    note(common, each);
  }
  return tokenizer;
}

std::string read_stdin() {
  std::string text;
  char piece[1 << 16];
  while (const size_t count = std::fread(piece, 1, sizeof(piece), stdin)) {
    text.append(piece, count);
  }
  check_input(std::ferror(stdin) == 0, "stdin can't be read");
  return text;
}

/// In quotes, with \n, \t, \r, \" and \\ as in C, and \xNN for what can't be shown.
std::string quoted(std::string_view bytes) {
  std::string shown = "\"";
  for (size_t i = 0; i < bytes.size();) {
    const text::DecodedChar next = text::decode_char(bytes, i);
    const size_t length = std::max<size_t>(next.length, 1);
    const std::string_view character = bytes.substr(i, length);
    const size_t named = std::string_view("\n\t\r\"\\").find(character);
    if (length == 1 && named != std::string_view::npos) {
      shown += '\\';
      shown += "ntr\"\\"[named];
    } else if (next.length == 0 || next.code < 0x20 || (next.code >= 0x7F && next.code < 0xA0)) {
      for (const char byte : character) {
        shown += fmt::format("\\x{:02X}", static_cast<unsigned char>(byte));
      }
    } else {
      shown += character;
    }
    i += length;
  }
  return shown + '"';
}

void print_table(const text::Tokenizer& tokenizer, const std::string& text,
                 const std::vector<int32_t>& ids) {
  std::vector<Row> rows = {{"id", "piece"}};
  for (const int32_t id : ids) {
    rows.push_back({fmt::format("{}", id), quoted(tokenizer.token_bytes(id))});
  }
  const std::string ratio =
      ids.empty() ? ""
                  : fmt::format(", {:.2f} bytes per token",
                                static_cast<double>(text.size()) / static_cast<double>(ids.size()));
  print(fmt::format("{}{} tokens, {} characters, {} bytes{} ({}, vocabulary {})\n",
                    ids.empty() ? "" : aligned(rows, 2), ids.size(), text::count_chars(text),
                    text.size(), ratio, tokenizer.kind(), tokenizer.vocab_size()));
}

int run_tokenize(const TokenizeOptions& options, bool has_text, const Common& common) {
  check_input(has_text == options.file.empty(), "give either --text or --file");
  const ConfigArgument argument = load_config_argument(options.argument, common);
  const auto tokenizer = get_tokenizer(argument, common);
  const std::string text = has_text              ? options.text
                           : options.file == "-" ? read_stdin()
                                                 : read_file(options.file);
  const std::vector<int32_t> ids = tokenizer->encode(text);
  if (!common.json) {
    print_table(*tokenizer, text, ids);
    return 0;
  }
  nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
  for (const int32_t id : ids) {
    pieces.push_back(tokenizer->token_bytes(id));
  }
  nlohmann::ordered_json ratio;  // null for no tokens
  if (!ids.empty()) {
    ratio = static_cast<double>(text.size()) / static_cast<double>(ids.size());
  }
  print_json({{"tokenizer", tokenizer->kind()},
              {"vocab_size", tokenizer->vocab_size()},
              {"tokens", ids.size()},
              {"characters", text::count_chars(text)},
              {"bytes", text.size()},
              {"bytes_per_token", ratio},
              {"ids", ids},
              {"pieces", pieces}});
  return 0;
}

}  // namespace

Action add_tokenize(CLI::App& app, Common& common) {
  const auto options = std::make_shared<TokenizeOptions>();
  app.add_option("CONFIG|RUN|PRESET", options->argument,
                 "whose tokenizer: a config's is learnt from its data.corpus")
      ->required();
  const CLI::Option* text = app.add_option("--text", options->text, "the text to encode");
  app.add_option("--file", options->file, "a file to encode; -: stdin")->type_name("FILE");
  set_footer(app,
             "  headroom tokenize runs/first --text 'To be, or not to be'\n"
             "  headroom tokenize gqa --set data.tokenizer=bpe --set data.vocab_size=512 \\\n"
             "      --set data.corpus=my.txt --file - < my.txt\n\n"
             "In --json a piece that is no UTF-8 by itself shows U+FFFD; its id is exact.");
  return [options, text, &common] { return run_tokenize(*options, text->count() > 0, common); };
}

}  // namespace headroom::cli
