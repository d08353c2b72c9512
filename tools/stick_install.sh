#!/bin/sh
# Makes the kit from this stick, without a network: sh install.sh [FOLDER]      (default: ~/pi2zero)
set -eu
stick=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$HOME/pi2zero}
no() { echo "install.sh stopped: $1" >&2; echo "What to do: $2" >&2; exit 1; }

[ -e "$folder" ] && no "there is something at $folder already." "name another folder: sh install.sh FOLDER"
for program in git make; do
  command -v $program >/dev/null || no "there is no $program." "install it (Debian or Ubuntu: apt-get install $program)"
done
(cd "$stick" && sha256sum --quiet -c SHA256SUMS) || no "the stick has lost something." "copy it again from where it was made"

git clone -q "$stick/kit.bundle" "$folder"
git -C "$folder" remote remove origin  # the stick will not stay

# What was compiled elsewhere is used only if it fits this machine to the letter; else it is compiled here.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pi2zero
(umask 077 && mkdir -p "$cache" && for part in "$stick"/built/*; do
  [ ! -d "$part" ] || [ -e "$cache/${part##*/}" ] || cp -R "$part" "$cache"
done && chmod -R go-rwx "$cache")

# pip reads several folders from one line: a link without spaces in its name.
links=$(mktemp -d)
trap 'rm -rf "$links"' EXIT
ln -s "$stick/wheels" "$links/wheels"
PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS="$links/wheels" UV_NO_CONFIG=1 make -C "$folder" --no-print-directory set-up

if [ -d "$stick/site" ]; then
  mkdir -p "$folder/site/build" && cp -R "$stick/site" "$folder/site/build/html"
  echo "To read: $folder/site/build/html/index.html"
fi
echo "The kit is in $folder. Next: cd $folder && make lab"
