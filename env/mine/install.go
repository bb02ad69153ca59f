package mine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/project"
	"deepswe/env/repo"
)

// Installation is what was installed for the tests of some candidates.
type Installation struct {
	// Dir holds the directories that tasks show. Variables say where tools find them.
	Dir       string
	Variables []string
}

// SetUp says how to install what the tests of candidates need.
type SetUp struct {
	// Before are command lines to run ahead of Commands, and After those to run afterwards, which keep what was
	// installed.
	Before, Commands, After []string
	// Variables are those of the commands and, later, of the tasks.
	Variables []string
	// Manifest is the project's package.json, if it has one.
	Manifest []byte
	// Spec describes the sandbox, except that it still has to show the directory for what is installed as [Kept].
	Spec env.Spec
}

// Kept is the path, in the sandbox of a set-up, of the directory that keeps what is installed.
const Kept = "/kept"

// testbed is the path of the repository in sandboxes.
const testbed = "/testbed"

// SetUp returns how to install what a candidate's tests need, without commands if that is not known. What is kept has
// no copy of the project itself, which could be a later one, except those of packages of Node, which tasks hide.
func (b Builder) SetUp(ctx context.Context, c Candidate) (SetUp, error) {
	dir, remove, err := b.checkOut(ctx, c.Needs())
	if err != nil {
		return SetUp{}, fmt.Errorf("set up %s: %w", c.Hash, err)
	}
	defer remove()
	caches := path.Join(Kept, env.Caches)
	s := SetUp{Before: []string{"mkdir -p " + caches + " && ln -sfn " + caches + " " + env.Caches}, Spec: env.Spec{
		Image: b.Image, Dir: testbed, CopyIn: b.Repository, Commit: c.Needs(), Rollout: b.ID(c),
	}}
	if uid := os.Getuid(); b.Image != "" { // which owns what is installed; an image may not have it
		s.Spec.User, s.Spec.Env = strconv.Itoa(uid), []string{"HOME=/tmp"}
	}
	s.Manifest, _ = repo.Blob(ctx, b.Repository, c.Needs()+":package.json") // many projects have none
	s.Commands, s.Variables = project.Install(dir, testbed, c.Language(), b.Machine)
	s.Before = append(s.Before, mendManifests(dir, c.Language())...)
	for _, copied := range project.Copies(dir) {
		if line := project.TakeOut(copied); line != "" {
			s.After = append(s.After, line)
		}
	}
	for _, name := range env.Dependencies() {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil && name != env.Caches {
			s.After = append(s.After, "test ! -d "+name+" || cp -a "+name+" "+Kept+"/")
		}
	}
	s.After = append(s.After, project.KeepGradle)
	if c.Language() == "rust" {
		s.After = append(s.After, project.KeepCargo)
	}
	const below = "find . -name .git -prune -o -path ./" + env.NodeModules + " -prune -o -type d -name " + env.NodeModules
	var there strings.Builder // the repository's own, such as those that its tests read
	for _, name := range project.NodeModules(dir) {
		there.WriteString(" ! -path " + env.ShellQuote("./"+name))
	}
	s.After = append(s.After, below+" -prune"+there.String()+" -exec cp -a --parents {} "+Kept+`/ \;`,
		"find "+Kept+" -type d -name "+env.NodeModules+" -prune -exec mkdir -p {}/"+
			strings.Join(env.NodeScratch(), " {}/")+` \;`,
		"rmdir "+caches+" 2>/dev/null || :") // where no tool has a cache
	return s, nil
}

// Lacking returns the packages that a candidate's tests need, but that its set-up has not installed. log is what the
// tests have printed after it.
func (b Builder) Lacking(ctx context.Context, c Candidate, log string) ([]string, error) {
	if c.Language() != "python" { // the manifests of the others are complete
		return nil, nil
	}
	dir, remove, err := b.checkOut(ctx, c.Needs())
	if err != nil {
		return nil, fmt.Errorf("find what the tests of %s lack: %w", c.Hash, err)
	}
	defer remove()
	return project.Lacking(dir, log), nil
}

// checkOut checks out a commit in a directory of its own, until remove is called.
func (b Builder) checkOut(ctx context.Context, commit string) (dir string, remove func(), err error) {
	scratch, err := disk.MakeScratch("", "mine")
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(scratch, "repo")
	if err := repo.CheckOut(ctx, b.Repository, commit, dir); err != nil {
		disk.RemoveScratch(scratch)
		return "", nil, err
	}
	return dir, func() { disk.RemoveScratch(scratch) }, nil
}

// AddParents lets a set-up download what the manifests of other commits ask for, too, as far as that works. It checks
// these commits out below the directory scratch, which must last until the set-up has run.
func (b Builder) AddParents(ctx context.Context, s *SetUp, language string, parents []string, scratch string) error {
	for _, parent := range parents {
		dir := filepath.Join(scratch, parent)
		if err := repo.CheckOut(ctx, b.Repository, parent, dir); err != nil {
			return fmt.Errorf("set up a parent: %w", err)
		}
		commands, _ := project.Install(dir, testbed, language, b.Machine)
		lines := append(mendManifests(dir, language), commands...)
		if language == "rust" {
			lines = append(lines, project.CompileCargo)
		}
		if len(lines) == 0 {
			continue
		}
		at := "/tmp/" + parent
		s.Spec.Shown = append(s.Spec.Shown, env.Shown{Host: dir, Path: "/parents/" + parent})
		s.Before = append(s.Before, "(cp -r /parents/"+parent+" "+at+" && cd "+at+" && "+strings.Join(lines, " && ")+
			" && rm -rf "+at+") || :")
	}
	return nil
}

// otherVersions returns the paths, in a sandbox, of the installed copies of the project itself that may be later than
// a candidate's base commit. Those that the commit's lock file pins are not, nor those of versions that tags of the
// commit or an earlier one name; the tools of the tests may need these.
func (b Builder) otherVersions(ctx context.Context, c Candidate, installed string, names, patterns []string) (
	hidden []string, err error,
) {
	if installed == "" {
		return nil, nil
	}
	tags, err := repo.Read(ctx, b.Repository, "for-each-ref", "--merged="+c.Base, "--format=%(refname:strip=2)",
		"refs/tags")
	if err != nil {
		return nil, err
	}
	locks := b.locks(ctx, c.Base)
	for _, pattern := range patterns {
		versions := append(project.Pinned(locks, pattern), project.Tagged(string(tags), pattern)...)
		for _, name := range names {
			if path.Base(name) != env.NodeModules {
				continue
			}
			at := path.Dir(name)
			for _, one := range project.OtherCopies(filepath.Join(installed, at), pattern, versions) {
				hidden = append(hidden, path.Join(testbed, at, one))
			}
		}
	}
	return hidden, nil
}

// locks returns what the lock files of Node in a commit say, one after the other.
func (b Builder) locks(ctx context.Context, commit string) string {
	var all strings.Builder
	for _, name := range project.NodeLocks() {
		text, _ := repo.Blob(ctx, b.Repository, commit+":"+name) // most projects have one of them at most
		all.Write(append(text, '\n'))
	}
	return all.String()
}

// shows links the installed dependencies of a commit into its directory dir, and returns their names: those that were
// installed for it or, without these, the repository's. So the tests are detected as they will run. An active
// environment of Python is found anyway.
func (b Builder) shows(dir, language, installed string) (names []string, err error) {
	root := cmp.Or(installed, b.Packages, b.Repository)
	all := env.Dependencies()
	if installed != "" || b.owns(env.NodeModules, language) {
		all = append(all, project.NodeModules(root)...)
	}
	for _, name := range all {
		host := filepath.Join(root, name)
		_, absent := os.Stat(host)
		_, there := os.Lstat(filepath.Join(dir, name))
		_, without := os.Stat(filepath.Join(dir, filepath.Dir(name))) // a package that the commit does not have
		if absent != nil || there == nil || without != nil || installed == "" && !b.owns(filepath.Base(name), language) {
			continue
		}
		if err := os.Symlink(host, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// owns reports whether projects in a language keep their dependencies in a directory of that name, and the tests have
// no other source for them.
func (b Builder) owns(name, language string) bool {
	switch name {
	case env.NodeModules:
		return b.Image == "" && runnerOf(language) == "javascript"
	case "vendor":
		return b.Image == "" && language == "php"
	case env.Caches:
		return false
	}
	return b.Image == "" && language == "python" && b.Machine.VirtualEnv == ""
}
