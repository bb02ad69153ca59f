package mine

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"strings"

	"deepswe/env"
)

// The limits of the search for copies of a change in archives. What exceeds them counts as a copy.
const (
	mostArchives   = 64
	largestArchive = 32 << 20
	mostArchived   = 128 << 20 // of all archives of a sandbox together, and of the unpacked content of each
)

// archives are the endings of the files in which package managers keep packages as they were published.
const archives = "zip whl egg jar aar nupkg crate gem tgz tar gz bz2 xz zst conda"

// ofPackage returns tests for the command find that match the archives of a package, by the names that package
// managers give to the files or to the directories that they are in.
func ofPackage(name string) string {
	glob := strings.NewReplacer("-", "[-_.]", "_", "[-_.]", ".", "[-_.]").Replace(name)
	var tests []string
	for _, file := range []string{"", "*[-_@.]"} {
		tests = append(tests, "-iname "+env.ShellQuote(file+glob+"[-_@][v0-9]*"))
	}
	tests = append(tests, "-iname "+env.ShellQuote("*"+glob+"-npm-*"),
		"-ipath "+env.ShellQuote("*/"+glob+"/*")+" -name '*.zip'")
	return strings.Join(tests, " -o ")
}

// archived is a search for the lines of a change in the files of an archive. left is how much may still be read.
type archived struct {
	lines []string
	found map[string]bool
	left  int64
}

// holdsCopy reports whether the files of an archive together have at least half of the lines. It is true for an
// archive that cannot be read.
func holdsCopy(archive []byte, lines []string) bool {
	a := archived{lines, map[string]bool{}, mostArchived}
	err := a.open(archive, 0)
	return err != nil || 2*len(a.found) >= len(lines)
}

var (
	errArchived = errors.New("there is too much in it")
	errNone     = errors.New("it is not an archive that can be read")
)

// deepest is the maximum depth of archives inside each other: a gem is a tar file that contains compressed ones.
const deepest = 3

// search looks for the lines in a file of an archive, which may be an archive itself. What cannot be read as one is
// searched as text.
func (a *archived) search(r io.Reader, depth int) error {
	data, err := io.ReadAll(io.LimitReader(r, a.left+1))
	if a.left -= int64(len(data)); a.left < 0 {
		return errArchived
	}
	if err != nil {
		return err
	}
	if err := a.open(data, depth); err == nil || errors.Is(err, errArchived) {
		return err
	}
	for _, line := range a.lines {
		if !a.found[line] && bytes.Contains(data, []byte(line)) {
			a.found[line] = true
		}
	}
	return nil
}

// open looks into the files of an archive.
func (a *archived) open(data []byte, depth int) error {
	const tarMagic, tarMagicAt = "ustar", 257
	switch {
	case depth == deepest:
		return errNone
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		return a.zip(data, depth+1)
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		return a.search(r, depth+1)
	case bytes.HasPrefix(data, []byte("BZh")):
		return a.search(bzip2.NewReader(bytes.NewReader(data)), depth+1)
	case len(data) > tarMagicAt && bytes.HasPrefix(data[tarMagicAt:], []byte(tarMagic)):
		return a.tar(data, depth+1)
	}
	return errNone
}

func (a *archived) zip(data []byte, depth int) error {
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, f := range r.File {
		content, err := f.Open()
		if err != nil {
			return err
		}
		if err := errors.Join(a.search(content, depth), content.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (a *archived) tar(data []byte, depth int) error {
	r := tar.NewReader(bytes.NewReader(data))
	for {
		_, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = a.search(r, depth)
		}
		if err != nil {
			return err
		}
	}
}
