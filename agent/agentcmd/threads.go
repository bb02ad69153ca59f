package agentcmd

import (
	"regexp"
	"strings"
)

// threadAnswer is a line of an agent's summary that answers a thread of a review.
var threadAnswer = regexp.MustCompile(`(?m)^[ \t*-]*\[thread ([\w-]+)\]:?[ \t]*(.+)$`)

// threadAnswers returns the answers to threads in an agent's summary, by their IDs.
func threadAnswers(answer string) map[string]string {
	all := map[string]string{}
	for _, m := range threadAnswer.FindAllStringSubmatch(answer, -1) {
		all[m[1]] = strings.TrimSpace(m[2])
	}
	return all
}

// withoutAnswers is the rest of the summary.
func withoutAnswers(answer string) string {
	return strings.TrimSpace(threadAnswer.ReplaceAllString(answer, ""))
}
