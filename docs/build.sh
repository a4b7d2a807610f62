#!/bin/sh
# build.sh MDBOOK DIRECTORY: builds the site into DIRECTORY. Pages link to files beside docs/, so the site is laid out as the
# repository is; only the list of contents, which mdBook wants at the top, changes its paths.
set -eu
mdbook=$1
site=$2
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir "$work/pages"
git ls-files -z docs probes api deploy examples crates/agent/src/api/routes.rs crates/compiler/headers 'tests/*README.md' bench/README.md ':(glob)*.md' \
    LICENSE-APACHE LICENSE-MIT | xargs -0 cp --parents -t "$work/pages"
cp docs/book.toml "$work"
sed -e 's|](\([^.]\)|](docs/\1|' -e 's|](\.\./|](|' docs/SUMMARY.md >"$work/pages/SUMMARY.md"
rm "$work/pages/docs/SUMMARY.md"
"$mdbook" build --dest-dir "$work/site" "$work"
mkdir -p "$(dirname "$site")"
rm -rf "$site"
mv "$work/site" "$site"
echo "the site is $site/index.html"
