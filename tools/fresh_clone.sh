#!/bin/sh
# Proves the README's two commands as a newcomer would type them: clones what is committed here into an empty folder,
# and runs `make demo` and `make test` there with an empty environment and no Java on PATH.
#
#   tools/fresh_clone.sh [FOLDER]
#
# FOLDER must not exist yet; without it, a temporary one is used, and removed when all went well.
# Of the environment only pip's settings, proxies and certificates are kept, and the folder of real data.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-}
keep=yes
if [ -z "$folder" ]; then
  folder=$(mktemp -d)/nova_assets
  keep=no
fi
[ ! -e "$folder" ] || { echo "fresh_clone: $folder exists already; name a folder that does not" >&2; exit 2; }

git clone --quiet "$here" "$folder"
folder=$(cd "$folder" && pwd)
around=$folder.around
mkdir -p "$around/bin" "$around/home"

# PATH: sh, make, git, and the coreutils with those three that every Unix has beside them. No Java, no uv, no compiler.
for name in sh bash env make git sed grep find \
  basename cat chmod cp cut date dirname echo expr false head id install ln ls mkdir mktemp mv nice nohup nproc printf ps \
  pwd readlink realpath rm rmdir sleep sort stat tail tee test touch tr true uname uniq wc; do
  for place in $(echo "$PATH" | tr ':' ' '); do  # not `command -v`: some are also words of the shell
    if [ -x "$place/$name" ]; then
      ln -s "$place/$name" "$around/bin/$name"
      break
    fi
  done
done
# Not a link: Python finds its library from where its program lies.
python=$(python3 -c 'import sys; print(sys._base_executable)')
printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$around/bin/python3"
chmod +x "$around/bin/python3"
if PATH=$around/bin command -v java >/dev/null; then
  echo "fresh_clone: there is a Java on the new PATH" >&2
  exit 1
fi

# `env -i` with the settings that the network of this machine needs.
data=${NOVA_SHARED_DATA:-$here/../shared/data}
set -- HOME="$around/home" PATH="$around/bin"
[ ! -d "$data" ] || set -- "$@" NOVA_SHARED_DATA="$(cd "$data" && pwd)"
[ ! -f "$HOME/.config/pip/pip.conf" ] || set -- "$@" PIP_CONFIG_FILE="$HOME/.config/pip/pip.conf"
for name in $(env | sed -n 's/^\(PIP_[A-Z_]*\|SSL_CERT_FILE\|SSL_CERT_DIR\|REQUESTS_CA_BUNDLE\)=.*/\1/p') \
  http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  eval "value=\${$name-}"
  [ -z "$value" ] || set -- "$@" "$name=$value"
done

cd "$folder"
for target in demo test; do
  echo "== make $target, in $folder"
  env -i "$@" make "$target"
done
echo "== both commands pass"
if [ "$keep" = no ]; then
  rm -rf "$(dirname "$folder")"
fi
