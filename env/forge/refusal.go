package forge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
)

// explain turns an error response into an error, with the wait before the next attempt; negative if retrying cannot
// help.
func (s *session) explain(resp *http.Response, body []byte) (time.Duration, error) {
	said := s.hide(message(body))
	limited := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusForbidden &&
		(resp.Header.Get("X-RateLimit-Remaining") == "0" || resp.Header.Get("Retry-After") != "" ||
			strings.Contains(strings.ToLower(said), "rate limit"))
	if limited {
		return s.limited(resp)
	}
	text := fmt.Sprintf("%s answered %d %s", s.api.Host, resp.StatusCode, http.StatusText(resp.StatusCode))
	if said != "" {
		text += " (" + clip(said, 300) + ")"
	}
	if advice := s.advice(resp, said); advice != "" {
		text += "; " + advice
	}
	wait := time.Duration(-1)
	if resp.StatusCode >= 500 {
		wait = 0
	}
	return wait, &statusError{status: resp.StatusCode, text: text}
}

// message returns what the body of an error says, in any of the forges' forms; empty if a proxy sent a web page.
func message(body []byte) string {
	var said struct {
		Message     any
		Errors      []any
		Error       any
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(body, &said)
	var words []string
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case string:
			words = append(words, v)
		case []any:
			for _, e := range v {
				collect(e)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if key == "message" || len(v) == 1 {
					collect(v[key])
				}
			}
		}
	}
	collect([]any{said.Message, said.Errors, said.Error, said.Description})
	return strings.Join(strings.Fields(visible(strings.Join(words, ": "))), " ")
}

// knownProblems are the forges' messages when they refuse a request or a push, and what can be done about each.
var knownProblems = []struct {
	said   func() *regexp.Regexp
	advice string
}{
	{env.Pattern(`(?i)not permitted to create or approve pull requests`), "allow it in the repository's settings " +
		"(Actions, General, Workflow permissions), or use a token of a person"},
	{env.Pattern(`(?i)without .?workflows?.? (scope|permission)`), "the token needs the permission workflow to " +
		"change files of CI"},
	{env.Pattern(`\bSAML\b`), "let the organisation's single sign-on authorise the token, in its settings"},
	{env.Pattern(`(?i)verified signatures|must be signed|not signed`), "the project takes signed commits only: " +
		"deepswe branch makes one for you to sign and push"},
	{env.Pattern(`(?i)protected branch|GH0(06|13)|pre-receive hook declined`), "the project's rules refuse the " +
		"branch: --branch NAME of deepswe pr chooses another, --via fork a fork"},
	{env.Pattern(`(?i)draft\b.*not supported`), "this repository has no drafts: --no-draft of deepswe " +
		"pr opens the pull request as ready for review"},
	{env.Pattern(`(?i)issues (are|has been) disabled`), "the repository has no issues: give the text itself"},
}

// knownAdvice returns what can be done about a refusal with a known message; empty for any other.
func knownAdvice(said string) string {
	for _, k := range knownProblems {
		if k.said().MatchString(said) {
			return k.advice
		}
	}
	return ""
}

// scopes are the words with which forges say that a token is valid and may not do something.
var scopes = env.Pattern(`(?i)scope|not accessible by|insufficient`)

// advice says what can be done about an error response.
func (s *session) advice(resp *http.Response, said string) string {
	name := tokenName(s.kind)
	read := resp.Request.Method == http.MethodGet
	if known := knownAdvice(said); known != "" {
		return known
	}
	switch code := resp.StatusCode; {
	case scopes().MatchString(said):
		needs := cmp.Or(resp.Header.Get("X-Accepted-GitHub-Permissions"), dialects[s.kind].scopes)
		if strings.HasPrefix(s.secret, "github_pat_") && !read {
			needs += "; a fine-grained one opens no pull request in the repository of another owner, a classic one does"
		}
		return "the token lacks a permission: it needs " + needs
	case (code == http.StatusUnauthorized || code == http.StatusNotFound) && s.secret == "":
		text := "set " + name
		if code == http.StatusNotFound {
			text = "there is no such issue, or the repository is private: then set " + name
		}
		return strings.TrimSuffix(text+"; "+s.withheld(s.site), "; ")
	case code == http.StatusUnauthorized:
		return name + " is not valid there"
	case read && (code == http.StatusNotFound || code == http.StatusForbidden):
		return "there is no such issue, or " + name + " may not read the repository (it needs read access to contents " +
			"and issues)"
	case code == http.StatusNotFound, code == http.StatusForbidden: // GitHub answers 404 to a token that may not write
		return name + " may not do that there"
	case code == http.StatusGone:
		return "the issue was deleted"
	case code == http.StatusLocked:
		return "the repository is archived, or the discussion is locked: nothing can be changed there"
	}
	return ""
}

// limited explains a rate limit, and returns how long to wait; negative unless the limit ends soon.
func (s *session) limited(resp *http.Response) (time.Duration, error) {
	text := s.api.Host + " limits the rate of requests"
	wait := time.Duration(-1)
	reset := cmp.Or(resp.Header.Get("X-RateLimit-Reset"), resp.Header.Get("RateLimit-Reset"))
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		wait = max(time.Duration(min(seconds, 1<<20))*time.Second, time.Millisecond)
	} else if reset, err := strconv.ParseInt(reset, 10, 64); err == nil {
		at := time.Unix(reset, 0)
		wait = max(time.Until(at), time.Millisecond)
		text += ", until " + at.Format("15:04")
	}
	if s.secret == "" {
		text += "; set " + tokenName(s.kind) + " for a higher limit"
	}
	if wait > longestWait {
		wait = -1
	}
	return wait, &statusError{status: resp.StatusCode, text: text}
}

// clip shortens a text to the given number of runes.
func clip(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most]) + "…"
}
