package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
)

// If a directory has too many new files, it is left out as a whole, which is reported. Other changes are kept.
func TestPatchLeavesOutCrowds(t *testing.T) {
	_, base, work := edited(t, map[string]string{"src/a": "one\n", ".gitignore": "ignored/\n"},
		map[string]string{"src/a": "two\n", "src/new": "x\n", "pkg/new/file": "x\n", ".gitignore": "ignored/\n"})
	base.maxNew = 50
	crowd := map[string]string{}
	for i := range base.maxNew {
		crowd[fmt.Sprintf("vendor/%d/%d", i%10, i)] = ""
		crowd[fmt.Sprintf("ignored/%d", i)] = "" // ignored files do not count
	}
	write(t, work.dir, crowd)
	p, err := base.Patch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"pkg/new/file", "src/a", "src/new"}, p.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	want := []Omission{{Path: "vendor/", Reason: "50 new files: a patch contains at most 50"}}
	if diff := cmp.Diff(want, p.Omitted); diff != "" {
		t.Errorf("omitted (-want +got):\n%s", diff)
	}
	if p.Ignored != base.maxNew {
		t.Errorf("%d files are ignored, want %d", p.Ignored, base.maxNew)
	}
}

// A patch within the limit contains all its files, in the order of their paths.
func TestPatchOfManyFiles(t *testing.T) {
	_, base, work := edited(t, map[string]string{"a": "one\n", "z": "one\n"}, map[string]string{"a": "two\n", "z": "two\n"})
	var want []string
	files := map[string]string{}
	for i := range 600 { // more than are read in one group
		name := fmt.Sprintf("many/%d", i)
		want, files[name] = append(want, name), fmt.Sprintln(i)
	}
	write(t, work.dir, files)
	p, err := base.Patch(t.Context(), work)
	if err != nil || len(p.Omitted) > 0 {
		t.Fatal(err, p.Omitted)
	}
	want = append(want, "a", "z")
	slices.Sort(want)
	if diff := cmp.Diff(want, p.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if n := strings.Count(string(p.Diff), "\ndiff --git "); n != len(want)-1 {
		t.Errorf("the diff has %d files, want %d", n+1, len(want))
	}
}

// slowTree fails as infrastructure after the given number of reads.
type slowTree struct {
	dirTree
	reads, most int32
}

func (s *slowTree) Read(ctx context.Context, path string, o env.ReadOptions) ([]byte, env.FileInfo, error) {
	if atomic.AddInt32(&s.reads, 1) > s.most {
		return nil, env.FileInfo{}, fmt.Errorf("%w: the guest is gone", env.ErrInfrastructure)
	}
	return s.dirTree.Read(ctx, path, o)
}

// If the guest goes away while files are read, that is an infrastructure failure, and never an omission.
func TestPatchOfASandboxThatGoesAway(t *testing.T) {
	_, base, work := edited(t, map[string]string{"a": "one\n"}, map[string]string{"a": "two\n", "b": "x\n"})
	if p, err := base.Patch(t.Context(), &slowTree{dirTree: work}); !errors.Is(err, env.ErrInfrastructure) {
		t.Errorf("patch %+v, %v", p, err)
	}
}

// TestUnfitIsWhatGitRefuses asks git about each path, with the protections for all systems on.
func TestUnfitIsWhatGitRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	commit(t, dir)
	g := git{dir: dir}
	const blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391" // an empty file
	refused := func(mode, path string) bool {
		_, err := g.run(t.Context(), nil, "-c", "core.protectNTFS=true", "-c", "core.protectHFS=true", "update-index",
			"--add", "--cacheinfo", mode+","+blob+","+path)
		return err != nil
	}
	for _, path := range []string{
		"a", ".git", "a/.git", ".git/a", ".GIT/a", ".gitx", ".git.", ".git . .", ".git.x", "a/.git /b", "git~1", "a/GIT~1/b",
		"git~2", "git~1x", "git~1.", ".git::$INDEX_ALLOCATION", ".git:x", "git~1:x", "xgit~1", ".g\u200cit", ".gi\u206ft/x",
		".git\ufeff", "\u200d.git", ".gi\u0131t", "..", "a/../b", "./a", "a//b", "a\\.git", "a\\b", ".gitmodules", "con", "a:b",
		".gitignore", ".gitattributes", ".git\xff", "é.git", "...", ". .", " ", ".git ~1",
	} {
		if got, want := unfit(path) != "", refused("100644", path); got != want && (!got || !strings.Contains(path, `\`)) {
			t.Errorf("%q: unfit %v, git refuses: %v", path, got, want)
		}
	}
	for _, path := range []string{".gitmodules", "a/.GITMODULES", "gitmod~1", "gitmod~4", "GI7EBA~1", ".gitmodules .",
		".gitmodule", "gitmod~5", ".gitmodules:x", ".gitignore", "a"} {
		link := change{path: path, after: &env.FileInfo{Kind: env.KindSymlink}}
		if got, want := link.unfit() != "", refused("120000", path); got != want {
			t.Errorf("a link %q: unfit %v, git refuses: %v", path, got, want)
		}
		file := change{path: path, after: &env.FileInfo{Kind: env.KindFile}}
		if file.unfit() != "" {
			t.Errorf("a file %q: %s", path, file.unfit())
		}
	}
}

// Names that git would refuse are left out of a patch, which can be applied without them.
func TestPatchWithNamesThatGitRefuses(t *testing.T) {
	source, base, work := edited(t, map[string]string{"a": "one\n"}, map[string]string{
		"a": "two\n", "git~1": "x", "sub/.git::$INDEX_ALLOCATION": "x", "sub/.git.": "x", ".g\u200cit/config": "x",
		".gitmodules@": "a",
	})
	p, err := base.Patch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a"}, p.Files); diff != "" || len(p.Omitted) != 5 {
		t.Errorf("omitted %v, files (-want +got):\n%s", p.Omitted, diff)
	}
	if err := Apply(t.Context(), source, p.Diff); err != nil {
		t.Errorf("apply: %v", err)
	}
}

func TestCondense(t *testing.T) {
	t.Parallel()
	var all []Omission
	for i := range 60 {
		all = append(all, Omission{fmt.Sprintf("a/%d", i), "too large"}, Omission{fmt.Sprintf("b/%d", i), "too large"})
	}
	all = append(all, Omission{"a/other", "odd"}, Omission{"root", "odd"})
	want := []Omission{
		{"a/", "60 files: too large"}, {"b/", "60 files: too large"}, {"a/other", "odd"}, {"root", "odd"},
	}
	if diff := cmp.Diff(want, condense(all)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(all[:100], condense(all[:100])); diff != "" {
		t.Errorf("a short list (-want +got)\n%s", diff)
	}
	for i := range all {
		all[i].Reason = fmt.Sprint(i)
	}
	if got := condense(all); len(got) != 100 || !strings.Contains(got[99].Reason, "122 changes in all") {
		t.Errorf("%d omissions, the last is %v", len(got), got[len(got)-1])
	}
}
