package repo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"deepswe/env/disk"
)

// Compare returns the difference between two texts as unified hunks, without a heading; empty when they are equal.
func Compare(ctx context.Context, before, after []byte) ([]byte, error) {
	dir, err := disk.MakeScratch("", "compare")
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	defer disk.RemoveScratch(dir)
	for name, data := range map[string][]byte{"before": before, "after": after} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
	}
	out, err := git{dir: dir}.run(ctx, nil, "diff", "--no-index", "--no-ext-diff", "--no-textconv", "--no-color",
		"--text", "before", "after")
	if err != nil && !exitedWith(err, 1) { // 1: they differ
		return nil, fmt.Errorf("compare: %w", err)
	}
	if i := bytes.Index(out, []byte("\n@@")); i >= 0 {
		return out[i+1:], nil
	}
	return nil, nil
}
