#!/bin/sh
# Unpacks cmocka from the distribution's packages into a folder; needs no root.
# usage: get_cmocka.sh FOLDER
set -eu
folder=${1:?usage: get_cmocka.sh FOLDER}
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "get_cmocka.sh: no apt-get here; install cmocka with your package manager" >&2
  exit 1
fi
mkdir -p "$folder"
cd "$folder"
download() { apt-get download -q libcmocka0 libcmocka-dev >/dev/null 2>&1; }
if ! download; then
  [ "$(id -u)" = 0 ] && apt-get update -q >/dev/null 2>&1 || true
  download || {
    echo "get_cmocka.sh: apt-get download failed; as root run 'apt-get install libcmocka-dev'" >&2
    exit 1
  }
fi
for package in ./*.deb; do dpkg -x "$package" .; done
