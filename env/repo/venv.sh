# A virtual environment names the Python that it was made with. Where that is somewhere else here, link to the one of the same version.
if ! "$1/bin/python" -c '' 2>/dev/null; then
  version=$(sed -n 's/^version[a-z_]* *= *\([0-9]*\.[0-9]*\).*/\1/p' "$1/pyvenv.cfg" | head -n 1)
  if python=$(command -v "python$version" 2>/dev/null); then
    for link in python python3 "python$version"; do ln -sfn "$python" "$1/bin/$link"; done
    sed -i "s|^home *=.*|home = $(dirname "$python")|" "$1/pyvenv.cfg"
  fi
fi
true
