# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: each step says in one line what it does, and how long it took when that was long.
# Everything goes to stderr, so that a script can print a result on stdout.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=$ROOT/.cache
mkdir -p "$CACHE"

# Tests start Python a thousand times: without compiled modules each start would compile all of them again, which was a
# third of its time.
unset PYTHONDONTWRITEBYTECODE

# say TEXT...: one line for the person who waits.
say() { printf '==> %s\n' "$*" >&2; }

# fail STATUS TEXT...: one line that says why, and the exit status.
fail() {
    local status=$1
    shift
    printf 'convgpu: %s\n' "$*" >&2
    exit "$status"
}

# step TEXT COMMAND...: runs the command with its output in a log, shown only when it fails.
step() {
    local text=$1 log begin status=0
    shift
    log=$(mktemp)
    begin=$SECONDS
    say "$text"
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -ne 0 ]; then
        tail -n 40 "$log" >&2
        printf '    failed with status %d: %.100s\n' "$status" "$*" >&2
    elif [ $((SECONDS - begin)) -ge 2 ]; then
        printf '    %d s: %s\n' $((SECONDS - begin)) "$text" >&2
    fi
    rm -f "$log"
    return "$status"
}

# apt_install PACKAGE...: from the machine's own mirror; lists are fetched once for each boot of a script.
apt_install() {
    command -v apt-get >/dev/null || fail 3 "needs the packages $* and this machine has no apt-get: install them and run this again"
    [ "$(id -u)" -eq 0 ] || fail 3 "needs the packages $*: run 'sudo apt-get install $*' and run this again"
    export DEBIAN_FRONTEND=noninteractive
    step "Fetch the package lists" apt-get update -q || say "some package lists could not be fetched; going on with the others"
    step "Install $* by apt" apt-get install -q -y --no-install-recommends "$@" ||
        fail 3 "apt-get could not install $*"
}

# mirror: prints the first Debian or Ubuntu mirror of this machine's apt sources, one-line or deb822 form.
mirror() {
    local id
    id=$(. /etc/os-release && echo "$ID")
    {
        sed -n 's/^URIs:[[:space:]]*//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | tr ' ' '\n' || true
        sed -nE 's/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\2/p' \
            /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true
    } | grep -m 1 -E "^https?://.*/$id/?$" || true
}

# lock: one build at a time in this checkout, until this script ends. Not before a daemon is started, which would
# inherit the descriptor and with it the lock.
lock() {
    [ -z "${CONVGPU_LOCKED:-}" ] || return 0
    exec 9>"$CACHE/lock"
    if ! flock -n 9; then
        say "Wait for another build in this checkout"
        flock 9
    fi
    export CONVGPU_LOCKED=1
}

# apt with lists and a status of its own, so that what this machine has installed plays no part.
foreign_apt() {
    local work=$1
    shift
    apt-get -q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::status=$work/status" \
        -o "Dir::State::lists=$work/lists" -o "Dir::Cache::archives=$work/debs" -o APT::Sandbox::User=root "$@"
}

# foreign_packages SUITE WORK PACKAGE...: of another Debian, from this machine's own mirror (or from FOREIGN_SOURCE, an
# archive and its options as apt writes them), unpacked into WORK/tree.
foreign_packages() {
    local suite=$1 work=$2 deb
    shift 2
    mkdir -p "$work"/{lists/partial,debs/partial,tree} && : >"$work/status" &&
        echo "deb ${FOREIGN_SOURCE:-[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(mirror)} $suite main" \
            >"$work/sources.list" &&
        foreign_apt "$work" update &&
        (cd "$work/debs" && foreign_apt "$work" download "$@") || return 1
    for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/tree" || return 1; done
}

# run_pytest OPTION...: with folders of short names, because the path of a UNIX socket has at most 107 characters and
# pytest-xdist makes a folder for each worker. They stay when a test fails.
run_pytest() {
    local folder status=0
    folder=$(mktemp -d /tmp/cgt.XXXX)
    "$ROOT/.venv/bin/pytest" -q --basetemp="$folder/t" "$@" || status=$?
    if [ "$status" -eq 0 ]; then rm -rf "$folder"; fi
    return "$status"
}
