"""Makes bpe_tokenizer.json and bpe_ids.json from bpe_training.txt with Hugging Face's `tokenizers`.

The library trains the tokenizer, writes the file and encodes the texts: nothing here comes from headroom.
Run in this folder, in an environment with tokenizers 0.23.3: python make_bpe.py
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers

TEXTS = [
    "",
    " ",
    "In the beginning God created the heaven and the earth.",
    "I'm sure they'll say we've won, it's what he'd do, isn't it? You're RIGHT'S.",
    "  two spaces,    four,\ttab,\n\nblank line,\n\n\ntwo blank lines  ",
    "line one\r\nline two\r\n\r\nline four",
    "3.14159 and 2,000,000 and x1y2 and ½ and ٣ and Ⅷ",
    "na\u00efve caf\u00e9, cre\u0300me bru\u0302le\u0301e, Gr\u00fc\u00dfe, \u0141\u00f3d\u017a",
    "学而时习之,不亦说乎?有朋自远方来。",
    "吾輩は猫である。名前はまだ無い。",
    "\u1f08\u03c1\u03c7\u1f74 \u1f25\u03bc\u03b9\u03c3\u03c5 \u03c0\u03b1\u03bd\u03c4\u03cc\u03c2",
    "😀😀 👩\u200d👩\u200d👧 🇫🇷 👍🏽",
    "a\u00a0b\u2003c\u3000d\u180ee\u200bf\u0085g\u2028h\x1ci",
    "\x00\x01\x7f\ufeff\ufffd\U0010ffff",
    "don't DON'T don\u2019t 'tis 's's 'll",
    "a" * 300 + " " * 300 + "the" * 100,
    "!!!??? -- ... (a)[b]{c} <html> a_b__c",
    "x = f(y)\n    return x  # done\n",
]


def main():
    here = Path(__file__).parent
    training_text = (here / "bpe_training.txt").read_bytes().decode()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([training_text], trainer)
    tokenizer.save(str(here / "bpe_tokenizer.json"), pretty=False)
    cases = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS]
    (here / "bpe_ids.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
