package mine

import (
	"encoding/json"
	"time"
)

// Issues are issues by their numbers.
type Issues map[string]issue

// issue is an issue as the command-line programs of forges print it; gh has the comments.
type issue struct {
	Number      json.Number
	Title, Body string
	Comments    []struct {
		Author      struct{ Login string }
		Body        string
		CreatedAt   time.Time
		IsMinimized bool // hidden, because it is spam or off the topic
	}
}

// ReadIssues reads a list of objects with number, title and body, and with comments if they are there.
func ReadIssues(data []byte) (Issues, error) {
	var list []issue
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	all := Issues{}
	for _, i := range list {
		all[i.Number.String()] = i
	}
	return all, nil
}

// mostComments is the size in bytes beyond which no further comment is a part of a text.
const mostComments = 24 << 10

// Text returns the title and text of the issue that a commit names, and the comments that are older than the commit:
// later ones may say how it was solved. It is empty if there is no such issue.
func (all Issues) Text(c Commit) string {
	i, ok := all[c.Issue()]
	if !ok {
		return ""
	}
	text, size := i.Title+"\n\n"+i.Body, 0
	for _, comment := range i.Comments {
		if size += len(comment.Body); size > mostComments {
			break
		}
		if comment.CreatedAt.Before(c.Written) && !comment.IsMinimized {
			text += "\n\nA comment by " + comment.Author.Login + ":\n\n" + comment.Body
		}
	}
	return text
}
