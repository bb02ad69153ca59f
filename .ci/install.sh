#!/bin/sh
# Installs deepswe from the archives of a release, whose checksums it compares:
#
#   sh install.sh [FROM [PREFIX]]
#
# FROM is an address or a folder with the archives (default: the latest release); PREFIX gets bin, lib and share
# (default: ~/.local). Nothing else is changed, and nothing needs root.
set -eu
from=${1:-https://github.com/@REPOSITORY@/releases/latest/download}
prefix=${2:-$HOME/.local}

case $(uname -s) in
  Linux) os=linux ;;
  Darwin) os=darwin ;;
  *) echo "install: there is no archive for $(uname -s); to fix: build it with Go" >&2; exit 1 ;;
esac
case $(uname -m) in
  x86_64 | amd64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) echo "install: there is no archive for $(uname -m); to fix: build it with Go" >&2; exit 1 ;;
esac
name=deepswe_${os}_$arch.tar.gz

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for file in "$name" checksums.txt; do
  if [ -d "$from" ]; then
    cp "$from/$file" "$dir/$file"
  elif command -v curl >/dev/null; then
    curl -fsSL -o "$dir/$file" "$from/$file"
  else
    wget -q -O "$dir/$file" "$from/$file"
  fi
done
cd "$dir"
grep " $name\$" checksums.txt >wanted
if command -v sha256sum >/dev/null; then sha256sum -c wanted; else shasum -a 256 -c wanted; fi >/dev/null || {
  echo "install: $name is not what checksums.txt names; nothing was installed" >&2
  exit 1
}
mkdir -p "$prefix"
tar -xzf "$name"
cp -R "deepswe_${os}_$arch"/* "$prefix/"
"$prefix/bin/deepswe" version
case :$PATH: in
  *:"$prefix/bin":*) ;;
  *) echo "to fix: $prefix/bin is not in PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
