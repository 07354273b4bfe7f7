# Sourced by tests/run.sh, plots/reproduce.sh and .ci/run: the packages that kvsim needs, and how to get them.

# Debian 12 and Ubuntu 24.04 carry all of them.
readonly kvsim_packages=(cmake g++ ninja-build libboost-graph-dev libboost-dev libyaml-cpp-dev libfmt-dev catch2
    libcli11-dev nlohmann-json3-dev libeigen3-dev python3-matplotlib)

# Installs the packages that are missing; does not call apt when none is. Returns 2 when it may not install.
install_packages() {
    local package missing=()
    for package in "${kvsim_packages[@]}"; do
        if [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
            missing+=("$package")
        fi
    done
    ((${#missing[@]})) || return 0

    local as_root=()
    if ((EUID != 0)); then
        as_root=(sudo -n)
        if ! sudo -n true 2>/dev/null; then
            echo "These packages are missing, and this user may not install them: ${missing[*]}" >&2
            echo "Ask an administrator to run: apt-get install ${missing[*]}" >&2
            return 2
        fi
    fi
    if ! command -v apt-get >/dev/null; then
        echo "These packages are missing, and there is no apt-get to install them with: ${missing[*]}" >&2
        return 2
    fi
    echo "Installing ${missing[*]}" >&2
    "${as_root[@]}" apt-get update -q >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
}

# Prints the first python3 that can draw: the one on PATH may be a version manager's, without the system's matplotlib.
python_with_matplotlib() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import matplotlib' 2>/dev/null; then
            echo "$python"
            return 0
        fi
    done
    echo "No python3 with matplotlib (package python3-matplotlib)" >&2
    return 2
}

# configure_kvsim FOLDER [cmake options...]: Release build tree in FOLDER, reused when it is there; the output of CMake is
# shown when it fails. KVSIM_CMAKE_OPTIONS adds options for every caller, such as -DKVSIM_WERROR=ON.
configure_kvsim() {
    local folder=$1 log options
    shift
    read -r -a options <<<"${KVSIM_CMAKE_OPTIONS:-}"
    [[ -e $folder/CMakeCache.txt ]] || options+=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
    log=$(mktemp)
    if ! cmake -S . -B "$folder" "${options[@]}" "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    sed -n '/^-- kvsim/,/^-- Configuring done/{/Configuring done/d;p}' "$log" >&2
    rm -f "$log"
}
