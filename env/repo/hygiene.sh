# Puts a new repository in the place of the one in the current directory, made of the base commit, $1, and what led to
# it: its objects, the tags on these commits, and what git is told to ignore. Nothing else of .git is kept, wherever git
# or another program has put it. The work tree is left as it is: what it has beside the base is committed on top, so that
# "git status" is clean and "git stash" or "git checkout" cannot lose it. Submodules become directories that git does not
# look into.
set -eu
if ! command -v git >/dev/null 2>&1; then
  # Nobody here can read the history but by taking the objects apart.
  rm -rf .git
  exit 0
fi
[ -e .git ] || exit 0
if [ ! -d .git ] || [ -L .git ]; then
  echo "the repository's .git is not a directory" >&2
  exit 1
fi

# No configuration of the image, no object in the place of another, and nothing fetched.
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
export GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/nonexistent GIT_NO_LAZY_FETCH=1
export GIT_AUTHOR_NAME=deepswe GIT_AUTHOR_EMAIL=deepswe@localhost
export GIT_COMMITTER_NAME=deepswe GIT_COMMITTER_EMAIL=deepswe@localhost
git() { command git -c core.hooksPath=/dev/null -c core.logAllRefUpdates=false -c protocol.allow=never \
  -c core.fsync=none "$@"; }
# The old repository is only read, by commands for which no setting of its own starts a program.
old() { git --git-dir=.git "$@"; }

if [ "$1" = HEAD ] && ! old rev-parse -q --verify HEAD >/dev/null; then
  # Nothing is checked out, so nothing of what may be in there is the past.
  rm -rf .git
  exit 0
fi
base=$(old rev-parse --verify "$1^{commit}")
new=.git/deepswe
rm -rf $new
format=$(old rev-parse --show-object-format) # repeats the option where git is too old to know it
[ "$format" = sha256 ] || format=
git init -q --bare --template= ${format:+--object-format=$format} $new

old for-each-ref --merged "$base" --format 'create %(refname) %(objectname)' refs/tags >$new/tags
pack() { { echo "$base" && sed 's/.* //' $new/tags; } | old pack-objects --revs -q $new/objects/pack/pack >/dev/null; }
if ! pack 2>/dev/null; then
  # Parts of the past are missing, as in a partial clone.
  echo "$base" >.git/shallow
  : >$new/tags
  pack
fi
if [ -e .git/shallow ]; then
  old rev-list --max-parents=0 "$base" | grep -Fxf .git/shallow >$new/shallow || rm $new/shallow
fi
if [ -f .git/info/exclude ]; then
  mkdir -p $new/info
  cat .git/info/exclude >$new/info/exclude
fi

export GIT_DIR=$new GIT_WORK_TREE=.
git config core.bare false
git update-ref --stdin <$new/tags
rm $new/tags
printf 'ref: refs/heads/main\n' >$new/HEAD
git update-ref refs/heads/main "$base"
git read-tree "$base"
git -c core.quotepath=false ls-files -s | sed -n 's/^160000 [0-9a-f]* 0.//p' | while read -r module; do
  find "./$module" -name .git -prune -exec rm -rf {} + 2>/dev/null || true
done
# What was tracked beside the base at the start must not be in it any more; what is new in the work tree stays untracked.
git update-index -q --refresh >/dev/null 2>&1 || true
git add -u
if ! git diff --cached --quiet "$base" --; then
  date=$(git show -s --format=%cI "$base")
  commit=$(echo "State of the work tree at the start" |
    GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date git commit-tree "$(git write-tree)" -p "$base")
  git update-ref refs/heads/main "$commit"
fi
find .git -mindepth 1 -maxdepth 1 ! -path $new -exec rm -rf {} +
mv $new/* .git/
rmdir $new
