//go:build linux

package inside

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"deepswe/env/guest"
)

func BenchmarkPing(b *testing.B) {
	c := start(b, b.TempDir())
	for b.Loop() {
		if err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead4K measures what a view of a small file costs.
func BenchmarkRead4K(b *testing.B) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("0123456\n"), 512), 0o644); err != nil {
		b.Fatal(err)
	}
	c := start(b, dir)
	for b.Loop() {
		if _, _, err := c.Read(b.Context(), "f", guest.ReadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBash compares with BenchmarkHostBash, which starts the same shell without a guest.
func BenchmarkBash(b *testing.B) {
	c := start(b, b.TempDir())
	for b.Loop() {
		if _, err := c.Run(b.Context(), guest.Command{Line: "true"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHostBash(b *testing.B) {
	shell := "/bin/bash"
	for b.Loop() {
		if out, err := exec.Command(shell, "-c", "true").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	c := start(b, "/usr/local/go/src/net")
	for b.Loop() {
		if _, err := c.Search(b.Context(), guest.Query{Term: "ErrServerClosed"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTree(b *testing.B) {
	c := start(b, "/usr/local/go/src/net")
	for b.Loop() {
		if _, err := c.Tree(b.Context(), "", guest.TreeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
