# A virtual environment names the Python that it was made with. If that is elsewhere here, link to the one of the same
# version; if there is none, say so to whoever runs it.
if ! "$1/bin/python" -c '' 2>/dev/null; then
  version=$(sed -n 's/^version[a-z_]* *= *\([0-9]*\.[0-9]*\).*/\1/p' "$1/pyvenv.cfg" | head -n 1)
  if python=$(command -v "python$version" 2>/dev/null); then
    for link in python python3 "python$version"; do ln -sfn "$python" "$1/bin/$link"; done
    sed -i "s|^home *=.*|home = $(dirname "$python")|" "$1/pyvenv.cfg"
  else
    for link in python python3 "python$version"; do
      rm -f "$1/bin/$link"
      printf '#!/bin/sh\necho "%s cannot be used here: it needs Python %s, which is not in this image" >&2\nexit 127\n' \
        "$1" "$version" >"$1/bin/$link"
      chmod 755 "$1/bin/$link"
    done
  fi
fi
true
