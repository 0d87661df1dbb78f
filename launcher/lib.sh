# shellcheck shell=bash
# Shared by launcher/setup, launcher/train and launcher/test; sourced, never run. Sets precast_root; set_up sets precast_env and
# precast_python.
# Messages go to stderr: stdout belongs to the job, and to the one line that launcher/setup prints.

precast_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# A wrong command line or an unusable machine: one line, and exit code 2.
refuse() {
  say "$*"
  exit 2
}

# Where the environment and the locks live. Prints the folder, which then exists.
cache_folder() {
  local base=${XDG_CACHE_HOME:-}
  if [[ -z $base ]]; then
    [[ -n ${HOME:-} ]] || refuse "neither XDG_CACHE_HOME nor HOME is set: set one to a folder with 6 GB of space"
    base=$HOME/.cache
  fi
  mkdir -p "$base/precast" || refuse "cannot create $base/precast: set XDG_CACHE_HOME to a folder that you may write"
  printf '%s\n' "$base/precast"
}

# The packages of launcher/packages.txt that dpkg does not have installed.
missing_packages() {
  local wanted installed
  wanted=$(grep -v '^#' "$precast_root/launcher/packages.txt" | sort)
  # dpkg-query fails where a package is unknown, and still lists the others.
  # shellcheck disable=SC2086  # one argument a package
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null | sed -n 's/ installed$//p' | sort -u) || true
  comm -23 <(printf '%s\n' "$wanted") <(printf '%s\n' "$installed")
}

install_packages() {
  local -a missing
  if ! command -v dpkg-query >/dev/null; then
    say "this is no Debian system: have what launcher/packages.txt names installed by other means"
    return
  fi
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if (($(id -u) != 0)); then
    say "missing system packages: ${missing[*]}"
    refuse "ask root to run: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  say "installing system packages: ${missing[*]}"
  local -a install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends
                    -o DPkg::Lock::Timeout=300 "${missing[@]}")
  # A fresh machine has no package lists, an old one lists of versions that the mirror no longer holds.
  if ! "${install[@]}" >&2; then
    say "trying again with fresh package lists"
    { apt-get update && "${install[@]}"; } >&2 || refuse "apt-get could not install: ${missing[*]}"
  fi
}

requirements_hash() { sha256sum "$precast_root/requirements.txt" | cut -c1-16; }

# Makes the Python environment in folder $1. A virtual environment cannot be moved, so it is made in place, and the stamp written
# last tells a finished one from one whose download was interrupted. Called under the lock.
make_environment() {
  local env=$1
  rm -rf "$env"
  say "making the Python environment $env: downloads several GB once, takes 5.4 GB"
  python3 -m venv "$env" >&2 || refuse "python3 -m venv failed: see the lines above"
  "$env/bin/python" -m pip install --disable-pip-version-check --no-input --quiet -r "$precast_root/requirements.txt" >&2 ||
    refuse "pip could not install requirements.txt: see the lines above; the next call starts again from pip's own cache"
  touch "$env/.complete" || refuse "cannot write $env"
}

# Installs system packages and makes the environment, each only where it is missing.
# Sets precast_env (its folder), precast_python (its interpreter).
set_up() {
  local cache
  cache=$(cache_folder) || exit
  precast_env=$cache/env-$(requirements_hash)
  precast_python=$precast_env/bin/python
  (
    flock 9
    install_packages
    [[ -e $precast_env/.complete && -x $precast_python ]] || make_environment "$precast_env"
  ) 9>"$cache/setup.lock" || exit
  # ccache, like everything else, must not need a home.
  [[ -n ${HOME:-} || -n ${CCACHE_DIR:-} || -n ${XDG_CACHE_HOME:-} ]] || export CCACHE_DIR=$cache/ccache
}

# nproc follows OMP_NUM_THREADS, which says nothing about the machine.
cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# One compiler a core, but a file that includes torch takes up to 2 GB.
build_jobs() {
  local cores memory
  cores=$(cores)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 2097152) }' /proc/meminfo)
  ((memory >= 1)) || memory=1
  echo $((memory < cores ? memory : cores))
}

# Called under the lock of build/$1. Ninja itself configures again when a CMake file changed; another environment it cannot see.
configure_where_needed() {
  local folder=$precast_root/build/$1
  [[ ! -e $folder/build.ninja ]] || ! grep -qxF "PRECAST_PYTHON:FILEPATH=$precast_python" "$folder/CMakeCache.txt" || return 0
  (cd "$precast_root" && cmake --preset "$1" -DPRECAST_PYTHON:FILEPATH="$precast_python") >&2
}

# Runs command $2... while holding the lock of build/$1: two calls in one checkout wait for each other.
in_build_folder() {
  local folder=$precast_root/build/$1
  shift
  mkdir -p "$folder"
  (flock 9 && "$@" 9>&-) 9>"$folder/.lock" || {
    say "the build failed: see the lines above"
    exit 1
  }
}

configure() { in_build_folder "$1" configure_where_needed "$1"; }

# build PRESET [TARGET...]: configures where needed and builds into build/PRESET.
build() {
  configure "$1"
  (cd "$precast_root/build/$1" && in_build_folder "$1" ninja -j "$(build_jobs)" "${@:2}") >&2 || exit
}
