#!/usr/bin/env bash
# All tests. Installs what it needs: a Rust toolchain must be there, the rest comes through cargo.
# Runs on a clean checkout from any directory; the first failure ends it.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

if ! command -v cargo >/dev/null; then
  echo "cargo is not on the PATH: install Rust (rust-version in Cargo.toml) with rustup" >&2
  exit 2
fi
for component in rustfmt clippy; do
  case "$component" in rustfmt) probe="cargo fmt --version" ;; clippy) probe="cargo clippy --version" ;; esac
  $probe >/dev/null 2>&1 || rustup component add "$component"
done
if ! command -v python3 >/dev/null; then
  # The emitted torch snippet is compiled and run by a real interpreter.
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq python3; fi
fi

step "format"
cargo fmt --check

step "lints"
cargo clippy --locked --all-targets -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --quiet

step "the cases that ship"
cargo run --locked --release --quiet -- verify cases

step "tests"
cargo test --locked

step "Python package"
if [ -n "${GOLDLINE_SKIP_TORCH:-}" ]; then
  echo "SKIPPED: the tests of the Python package, since GOLDLINE_SKIP_TORCH is set" >&2
else
  # torch takes gigabytes: one environment for each list of requirements, beside all checkouts.
  key=$(sha256sum python/tests/requirements.txt | cut -c1-16)
  environment="${XDG_CACHE_HOME:-$HOME/.cache}/goldline-tests/$key"
  if [ ! -e "$environment/complete" ]; then
    rm -rf "$environment"
    if ! python3 -m venv "$environment"; then
      # Debian's python3 comes without what venv needs.
      apt-get update -qq && apt-get install -y -qq python3-venv
      rm -rf "$environment"
      python3 -m venv "$environment"
    fi
    "$environment/bin/pip" install --quiet --requirement python/tests/requirements.txt
    touch "$environment/complete"
  fi
  GOLDLINE_BIN="${CARGO_TARGET_DIR:-$PWD/target}/release/goldline" "$environment/bin/python" -m pytest -q python/tests
fi
