#!/bin/sh
# Prints the path of a training corpus on stdout, and all else on stderr. The corpus is
#   $CORPUS                      if set: any text file
#   data/tinyshakespeare.txt     downloaded once, its content checked
#   data/king-james-bible.txt    where that fails, from Debian's bible-kjv package
# What is already there is used: a sweep that goes on must find the corpus it began with.
# Usage: [CORPUS=file] scripts/corpus.sh
set -eu

url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
sha256=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
network_seconds=10

say() { echo "corpus.sh: $1" >&2; }

fail() {
  say "$1"
  exit "$2"
}

if [ -n "${CORPUS:-}" ]; then
  { [ -f "$CORPUS" ] && [ -r "$CORPUS" ]; } || fail "CORPUS=$CORPUS is not a file that can be read." 2
  [ -s "$CORPUS" ] || fail "CORPUS=$CORPUS is empty." 2
  printf '%s\n' "$CORPUS"
  exit 0
fi

root=$(cd "$(dirname "$0")/.." && pwd)
data=$root/data
[ "$(pwd)" = "$root" ] && data=data # short paths in the usual case
shakespeare=$data/tinyshakespeare.txt
bible=$data/king-james-bible.txt

is_shakespeare() { [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$sha256  -" ]; }
is_bible() { [ -f "$1" ] && [ "$(wc -l <"$1")" -eq 31102 ]; } # verses

# download FILE: gives up after $network_seconds in all, name look-up included.
download() {
  if command -v curl >/dev/null; then
    timeout --foreground "$network_seconds" curl --fail --silent --show-error --location --output "$1" "$url" >&2
  elif command -v wget >/dev/null; then
    timeout --foreground "$network_seconds" wget --quiet --tries=1 --output-document="$1" "$url" >&2
  else
    say "neither curl nor wget is installed (scripts/setup.sh installs curl)."
    return 1
  fi
}

if is_shakespeare "$shakespeare"; then
  echo "$shakespeare"
  exit 0
fi
if is_bible "$bible"; then
  say "using the King James Bible from an earlier run; remove $bible to try Tiny Shakespeare again."
  echo "$bible"
  exit 0
fi

mkdir -p "$data"
part=$(mktemp "$data/.corpus.XXXXXX")
trap 'rm -f "$part"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
chmod 644 "$part"

say "downloading Tiny Shakespeare (1.1 MB) ..."
if ! download "$part"; then
  say "the download failed (it is given up after $network_seconds s)."
elif ! is_shakespeare "$part"; then
  say "what $url gave is not Tiny Shakespeare: its sha256 differs."
else
  mv "$part" "$shakespeare"
  echo "$shakespeare"
  exit 0
fi

say "taking the King James Bible (4.4 MB, package bible-kjv) instead; CORPUS=file takes any other text."
command -v bible >/dev/null ||
  fail "the program bible is missing: run scripts/setup.sh, or give a text with CORPUS=file." 1
# -f: one verse a line, with its reference; -p: not a data file that happens to lie here.
{ bible -p /usr/lib -f Genesis1:1-Revelation22:21 </dev/null >"$part" && is_bible "$part"; } ||
  fail "bible did not print the 31102 verses of the King James Bible." 1
mv "$part" "$bible"
echo "$bible"
