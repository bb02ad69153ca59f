package disk

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// ReadList reads a file with an item per line. Empty lines and lines that begin with # are ignored; a file without
// items is an error.
func ReadList(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var items []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			items = append(items, line)
		}
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("%s names nothing: want one per line", file)
	}
	return items, nil
}

// FollowList reads the file at each interval until ctx ends, and calls apply with its items when they differ from now
// or from those last applied. What cannot be read or applied is tried again; failed gets the error if it is another
// than before.
func FollowList(
	ctx context.Context, file string, every time.Duration, now []string, apply func(items []string) error,
	failed func(error),
) {
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		items, err := ReadList(file)
		if err == nil && !slices.Equal(items, now) {
			if err = apply(items); err == nil {
				now = items
			}
		}
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			failed(err)
		}
	}
}
