package mine

import (
	"testing"
	"time"
)

// A statement has the comments on an issue that are older than the commit which solves it.
func TestIssues(t *testing.T) {
	t.Parallel()
	issues, err := ReadIssues([]byte(`[
		{"number": 4, "title": "Nine", "body": "One is lost.", "comments": [
			{"author": {"login": "ada"}, "body": "With 11, too.", "createdAt": "2026-03-01T10:00:00Z"},
			{"author": {"login": "shop"}, "body": "Buy here.", "createdAt": "2026-03-01T11:00:00Z", "isMinimized": true},
			{"author": {"login": "bob"}, "body": "It rounds down now.", "createdAt": "2026-03-03T09:00:00Z"}]},
		{"number": 5, "title": "Ten", "body": ""}]`))
	if err != nil {
		t.Fatal(err)
	}
	written := time.Date(2026, 3, 3, 8, 0, 0, 0, time.UTC)
	for message, want := range map[string]string{
		"Fixes #4": "Nine\n\nOne is lost.\n\nA comment by ada:\n\nWith 11, too.", "Fixes #5": "Ten\n\n", "Fixes #6": "",
	} {
		c := Commit{Message: message, Written: written, Time: written.Add(24 * time.Hour)}
		if got := issues.Text(c); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}
